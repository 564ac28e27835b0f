// Drives the dashboard in chromium, at desktop and phone width, and checks what a person would see and do.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

const { OPEN_URL, GUARDED_URL, REAL_URL, TOKEN, SHOTS, PROFILE } = process.env;
const FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync'];
const DESKTOP = { width: 1440, height: 900 };
const PHONE = { width: 390, height: 844 };

/** A page of its own, with everything that went wrong on it. */
async function open(url, viewport, colorScheme, work) {
  const context = await chromium.launchPersistentContext(join(PROFILE, String(Math.random())), {
    executablePath: '/usr/bin/chromium', headless: true, args: FLAGS, viewport, colorScheme,
  });
  const page = context.pages()[0] ?? await context.newPage();
  page.setDefaultTimeout(10_000);
  const wrong = [];
  page.on('pageerror', (error) => wrong.push(`error: ${error.message}`));
  page.on('console', (line) => line.type() === 'error' && wrong.push(`console: ${line.text()}`));
  page.on('request', (request) => new URL(request.url()).origin !== new URL(url).origin
    && !request.url().startsWith('data:') && wrong.push(`foreign: ${request.url()}`));
  await page.goto(url);
  try {
    await work(page, wrong);
  } finally {
    await context.close();
  }
}

const shot = (page, name) => page.screenshot({ path: join(SHOTS, `${name}.png`), fullPage: true });
const step = (words) => console.log(`- ${words}`);
const said = (page, words) => page.locator('#said', { hasText: words }).waitFor();

async function isWithoutOverflow(page, name) {
  const [wide, seen] = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
  assert.ok(wide <= seen, `${name}: ${wide} px wide, ${seen} are seen`);
}

async function figuresAreShown(page) {
  await page.locator('#state-text', { hasText: 'running' }).waitFor();
  await page.locator('#pools tbody tr', { hasText: 'BILLING' }).waitFor();
  for (const [table, count] of [['#pools', 4], ['#groups', 10], ['#shards', 3], ['#targets', 3], ['#queues', 3], ['#dead', 10]]) {
    assert.equal(await page.locator(`${table} tbody tr`).count(), count, `${table} rows`);
  }
  assert.match(await page.locator('#figures').innerText(), /delivered\/s\s+\d+(\.\d+)?k/);
  assert.ok(await page.locator('#targets', { hasText: 'tripped' }).count(), 'breaker state');
  assert.ok(await page.locator('#queues', { hasText: 'connection refused' }).count(), 'queue error');
  for (const chart of ['#chart-rate', '#chart-latency']) {
    const path = await page.locator(`${chart} path`).first().getAttribute('d');
    assert.ok(path.split('L').length > 200, `${chart} has a line`);
    assert.ok(await page.locator(`${chart} .tick`).count() >= 6, `${chart} has axes`);
  }
}

async function theChartReadsOut(page) {
  const chart = page.locator('#chart-rate svg');
  const box = await chart.boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  await page.locator('#chart-rate .cross').waitFor({ state: 'attached' });
  assert.match(await page.locator('#chart-rate .legend').innerText(), /\d+:\d\d/);
  await page.mouse.move(0, 0);
  await page.locator('#chart-rate .cross').waitFor({ state: 'detached' });
  await chart.focus();
  await page.keyboard.press('PageUp');
  await page.locator('#chart-rate .cross').waitFor({ state: 'attached' });
  assert.match(await chart.getAttribute('aria-label'), /delivered\/s/);
  await chart.blur();
}

async function figuresMove(page) {
  const read = () => page.locator('#pools').innerText();
  const before = await read();
  await page.waitForFunction((old) => document.querySelector('#pools').innerText !== old, before);
}

async function aRealRouterIsShown(page) {
  await page.locator('#state-text', { hasText: 'running' }).waitFor();
  for (const [table, words] of [['#pools', 'ORDERS'], ['#pools', 'DEFAULT-POOL'], ['#groups', 'stuck'],
    ['#targets', 'http://127.0.0.1:'], ['#queues', 'default'], ['#dead', 'refused'], ['#warnings', 'CONFIGURATION']]) {
    await page.locator(table, { hasText: words }).waitFor();
  }
  await page.waitForFunction(() => /delivered\/s\s+[1-9]/.test(document.querySelector('#figures').innerText));
  await figuresMove(page);
}

async function hostileTextStaysText(page) {
  const cell = page.locator('#groups th', { hasText: 'onerror' });
  assert.match(await cell.innerText(), /^<img src=x/);
  assert.equal(await page.locator('#groups img, #groups script').count(), 0);
  assert.doesNotMatch(await page.title(), /owned/);
}

async function poolsAreFound(page) {
  await page.getByLabel('find').fill('bill');
  await page.locator('#pools-shown', { hasText: '1 of 4' }).waitFor();
  assert.equal(await page.locator('#pools tbody tr').count(), 1);
  await page.getByLabel('find').fill('nothing like it');
  await page.locator('#pools', { hasText: 'No pool of this name.' }).waitFor();
  await page.getByLabel('find').fill('');
  await page.locator('#pools tbody tr', { hasText: 'ORDERS' }).waitFor();
}

async function aPoolIsChanged(page) {
  await page.getByLabel('Change pool ORDERS').click();
  await page.getByLabel('Most calls at once of ORDERS').fill('123');
  await page.getByLabel(/Most messages a minute of ORDERS/).fill('4567');
  await shot(page, 'desktop-edit');
  await page.keyboard.press('Enter');
  await said(page, 'Pool ORDERS changed.');
  const row = page.locator('#pools tr', { hasText: 'ORDERS' });
  await row.filter({ hasText: '/ 123' }).waitFor();
  await row.filter({ hasText: '4,567' }).waitFor();
}

async function aWarningIsAcknowledged(page) {
  assert.equal(await page.locator('#warnings-count').innerText(), '4');
  await page.getByLabel('Acknowledge CONSUMER_RESTART_FAILED of orders-eu').click();
  await page.locator('#warnings-count', { hasText: '3' }).waitFor();
  await page.locator('#warnings li.acknowledged', { hasText: 'CONSUMER_RESTART_FAILED' }).waitFor();
  await page.locator('#warnings-clear').click();
  await page.locator('#warnings', { hasText: 'All quiet' }).waitFor();
}

async function deadLettersAreRetried(page) {
  await page.getByLabel('Show dead letter 1', { exact: true }).click();
  await page.locator('#explained', { hasText: 'messageId' }).waitFor();
  await page.locator('#explained button').click();
  await page.locator('#dead-older').click();
  await page.locator('#dead-range', { hasText: '11–12 of 12' }).waitFor();
  await page.locator('#dead-newer').click();
  await page.getByLabel('Retry dead letter 1', { exact: true }).click();
  await said(page, '1 dead letters');
  await page.locator('#dead-filter [name=reason]').selectOption('MALFORMED');
  await page.locator('#dead-count', { hasText: /^4$/ }).waitFor();
  page.once('dialog', (dialog) => dialog.accept());
  await page.locator('#dead-retry').click();
  await said(page, '4 dead letters are on their way');
  await page.locator('#dead', { hasText: 'None.' }).waitFor();
  await page.locator('#dead-filter [name=reason]').selectOption('');
  await page.locator('#dead-count', { hasText: /^7$/ }).waitFor();
}

async function aGroupIsExplained(page) {
  await page.getByLabel('Message id, group or target').fill('customer-7');
  await page.keyboard.press('Enter');
  await page.locator('#explained', { hasText: 'waits for the breaker' }).waitFor();
  await shot(page, 'desktop-explain');
  await page.getByLabel('Message id, group or target').fill('nobody');
  await page.keyboard.press('Enter');
  await page.locator('#explained', { hasText: 'nothing is known' }).waitFor();
  await page.locator('#explained button').click();
}

async function aLostConnectionIsSaid(page) {
  await page.route('**/api/**', (route) => route.abort());
  await page.locator('#lost', { hasText: 'No answer from the router' }).waitFor();
  await page.locator('#state-text', { hasText: 'connection lost' }).waitFor();
  await shot(page, 'desktop-lost');
  await page.unroute('**/api/**');
  await page.locator('#lost').waitFor({ state: 'hidden' });
  await page.locator('#state-text', { hasText: 'running' }).waitFor();
}

async function aTokenIsAskedFor(page) {
  await page.locator('#token-dialog[open]').waitFor();
  await page.getByLabel('Token', { exact: true }).fill('wrong-token-of-length');
  await page.keyboard.press('Enter');
  await page.locator('#token-problem', { hasText: 'not the admin token' }).waitFor();
  await shot(page, 'desktop-token');
  await page.getByLabel('Token', { exact: true }).fill(TOKEN);
  await page.keyboard.press('Enter');
  await page.locator('#state-text', { hasText: 'running' }).waitFor();
  assert.equal(await page.locator('#token-dialog[open]').count(), 0);
}

await open(OPEN_URL, DESKTOP, 'dark', async (page, wrong) => {
  step('figures, tables and charts');
  await figuresAreShown(page);
  await shot(page, 'desktop-dark');
  await isWithoutOverflow(page, 'desktop');
  step('the chart reads out by pointer and keyboard');
  await theChartReadsOut(page);
  step('figures move');
  await figuresMove(page);
  step('hostile text stays text');
  await hostileTextStaysText(page);
  step('pools are found by name');
  await poolsAreFound(page);
  step('a pool is changed');
  await aPoolIsChanged(page);
  step('a group is explained');
  await aGroupIsExplained(page);
  step('dead letters are shown and retried');
  await deadLettersAreRetried(page);
  // A 404 that was asked for is a line in the console, and no fault of the page.
  assert.deepEqual(wrong.filter((line) => !line.includes('404')), []);
  step('a lost connection is said, and found again');
  await aLostConnectionIsSaid(page);
});
await open(OPEN_URL, DESKTOP, 'light', async (page) => {
  await figuresMove(page);
  await shot(page, 'desktop-light');
});
await open(OPEN_URL, PHONE, 'dark', async (page, wrong) => {
  step('the same on a phone');
  await page.locator('#pools tbody tr', { hasText: 'BILLING' }).waitFor();
  await shot(page, 'phone-dark');
  await isWithoutOverflow(page, 'phone');
  step('a warning is acknowledged and all are cleared');
  await aWarningIsAcknowledged(page);
  assert.deepEqual(wrong, []);
});
await open(REAL_URL, DESKTOP, 'light', async (page, wrong) => {
  step('a real router under real traffic');
  await aRealRouterIsShown(page);
  await isWithoutOverflow(page, 'real');
  await shot(page, 'desktop-real');
  assert.deepEqual(wrong, []);
});
await open(GUARDED_URL, DESKTOP, 'dark', async (page) => {
  step('a token is asked for');
  await aTokenIsAskedFor(page);
});
