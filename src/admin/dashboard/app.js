// The dashboard: asks /api/view once a second while it is seen, and shows it. Text from outside is only ever
// set as text, never as markup.

import { Chart } from '/chart.js';
import { ago, bytes, compact, cells, el, find, latency, meter, rows, whole } from '/parts.js';

const REFRESH_MS = 1000;
const PAGE_ROWS = 10;
const POOLS_MAX = 50;
const HISTORY_MAX = 900;
const TOKEN = 'corelane-token';

const charts = {
  rate: new Chart(find('#chart-rate'), {
    series: [{ key: 'deliveredPerS', label: 'delivered/s', tone: 'a' }, { key: 'failedPerS', label: 'failed/s', tone: 'c' }],
    format: compact,
  }),
  latency: new Chart(find('#chart-latency'), {
    series: [{ key: 'p50Us', label: 'p50', tone: 'a' }, { key: 'p99Us', label: 'p99', tone: 'b' }],
    format: latency,
    log: true,
  }),
};
const state = { history: [], seenAt: 0, editing: null, deadOffset: 0, asking: false };

// Talking to the API.

class Refused extends Error {}

async function api(path, method = 'GET', body = undefined) {
  const headers = {};
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.authorization = `Bearer ${token}`;
  if (body !== undefined) headers['content-type'] = 'application/json';
  const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body), signal: AbortSignal.timeout(10_000) });
  const said = await answer.json();
  if (answer.ok) return said;
  if (answer.status === 401 || said.error?.code === 'LOCKED_OUT') askForToken(token ? said.error?.message : '');
  throw new Refused(said.error?.message ?? `the router answered ${answer.status}`);
}

/** Does what a button asks, and says how it went. */
async function act(button, words, work) {
  button.disabled = true;
  try {
    say(words(await work()));
    await refresh();
  } catch (error) {
    say(`Not done: ${error.message}`, true);
  } finally {
    button.disabled = false;
  }
}

function say(words, bad = false) {
  const said = find('#said');
  clearTimeout(state.saying);
  state.saying = setTimeout(() => { said.textContent = ''; }, bad ? 15_000 : 6_000);
  said.textContent = words;
  said.className = bad ? 'bad' : 'good';
}

function askForToken(problem) {
  const dialog = find('#token-dialog');
  if (dialog.open) return;
  find('#token-problem').textContent = problem ?? '';
  dialog.showModal();
}

find('#token-form').addEventListener('submit', () => {
  sessionStorage.setItem(TOKEN, find('#token').value.trim());
  find('#token').value = '';
  setTimeout(refresh, 0);
});

// The loop.

async function refresh() {
  if (state.asking || document.hidden || find('#token-dialog').open) return;
  state.asking = true;
  try {
    const since = state.history.at(-1)?.unixS;
    // Alone first: a wrong token is then one wrong token, not three on the way to a lock-out.
    const view = await api(since ? `/api/view?since=${since}` : '/api/view');
    const [groups, warnings] = await Promise.all([
      api(`/api/groups?limit=10&by=${find('#groups-by').value}`),
      api('/api/warnings'),
    ]);
    state.seenAt = Date.now();
    state.history = state.history.concat(view.history).slice(-HISTORY_MAX);
    show(view, groups.groups, warnings);
    await showDead();
  } catch (error) {
    if (!(error instanceof Refused)) lost();
  } finally {
    state.asking = false;
  }
}

function lost() {
  const time = state.seenAt ? `for ${ago((Date.now() - state.seenAt) / 1000)}` : '';
  const banner = find('#lost');
  banner.hidden = false;
  banner.textContent = `No answer from the router ${time}. What you see is old. Trying again every second.`;
  document.body.classList.add('stale');
  find('#state').dataset.tone = 'bad';
  find('#state-text').textContent = 'connection lost';
}

setInterval(refresh, REFRESH_MS);
document.addEventListener('visibilitychange', refresh);
find('#groups-by').addEventListener('change', refresh);
find('#pools-find').addEventListener('input', refresh);
refresh();

// What is shown.

function show(view, groups, warnings) {
  find('#lost').hidden = true;
  document.body.classList.remove('stale');
  const tone = view.state !== 'RUNNING' ? 'warn' : view.ready ? 'good' : 'bad';
  find('#state').dataset.tone = tone;
  find('#state-text').textContent = `${view.state.toLowerCase()}${view.ready ? '' : ', not ready'}`;
  find('#about').textContent = `${view.version} · ${view.io} · up ${ago(view.atUnixMs / 1000 - view.startedUnixS)}`;
  find('#not-ready').hidden = view.ready || !view.notReady.length;
  find('#not-ready').textContent = `Not ready: ${view.notReady.join('; ')}`;
  document.title = `${compact(view.deliveredPerS)}/s${view.warnings ? ` · ${view.warnings} warnings` : ''} · corelane`;
  showFigures(view);
  charts.rate.show(state.history);
  charts.latency.show(state.history);
  showPools(view.pools);
  showGroups(groups);
  showWarnings(warnings);
  showShards(view.shards);
  showTargets(view.targets);
  showQueues(view.queues);
}

function showFigures(view) {
  const slack = view.leaseSlackS;
  const figures = [
    ['delivered/s', compact(view.deliveredPerS)],
    ['p50', latency(view.latency.p50Us)],
    ['p95', latency(view.latency.p95Us)],
    ['p99', latency(view.latency.p99Us)],
    ['p99.9', latency(view.latency.p999Us)],
    ['in flight', whole(view.inflight), `${bytes(view.inflightBytes)} of ${bytes(view.memoryBudget)}`],
    ['least lease left', slack === null ? '–' : `${slack.toFixed(0)} s`, '', slack !== null && slack < 5 ? 'bad' : ''],
    ['owed', whole(view.owed)],
    ['dead letters', whole(view.deadLetters), '', view.deadLetters ? 'warn' : ''],
    ['warnings', whole(view.warnings), '', view.warnings ? 'warn' : ''],
  ];
  rows(find('#figures'), figures, ([name]) => name, () => el('div', {}, el('dt'), el('dd'), el('dd', { className: 'dim' })),
    (node, [name, value, more, tone]) => {
      node.className = tone ?? '';
      cells(node, [name, value, more ?? '']);
    });
}

/** All by code, or the busiest where there are too many to look at. The one being edited stays. */
function poolsToShow(pools) {
  const wanted = find('#pools-find').value.trim().toLowerCase();
  const found = pools.filter((pool) => pool.code.toLowerCase().includes(wanted) || pool.code === state.editing);
  if (found.length <= POOLS_MAX) return found;
  const load = (pool) => (pool.code === state.editing ? Infinity : pool.queued + pool.active);
  return found.sort((a, b) => load(b) - load(a)).slice(0, POOLS_MAX);
}

function showPools(all) {
  const pools = poolsToShow(all);
  find('#pools-shown').textContent = pools.length < all.length ? `${pools.length} of ${whole(all.length)}` : '';
  rows(find('#pools tbody'), pools, (pool) => pool.code, poolRow, (row, pool) => {
    if (state.editing === pool.code) return;
    row.pool = pool;
    const [code, calls, waiting, groups, delivered, rate] = row.children;
    code.textContent = pool.draining ? `${pool.code} (draining)` : pool.code;
    meter(calls, pool.active, pool.concurrency, `${whole(pool.active)} / ${whole(pool.concurrency)}`);
    meter(waiting, pool.queued, pool.capacity, `${compact(pool.queued)} / ${compact(pool.capacity)}`, 0.9);
    groups.textContent = whole(pool.groups);
    delivered.textContent = compact(pool.deliveredPerS);
    rate.textContent = pool.rateLimitPerMinute === null ? '∞' : whole(pool.rateLimitPerMinute);
  }, 'No pool of this name.');
}

function poolRow(pool) {
  const change = el('button', { type: 'button', textContent: 'Change', ariaLabel: `Change pool ${pool.code}` });
  const row = el('tr', {}, el('th', { scope: 'row' }), el('td'), el('td'), el('td', { className: 'n' }),
    el('td', { className: 'n' }), el('td', { className: 'n' }), el('td', { className: 'n' }, change));
  change.addEventListener('click', () => editPool(row));
  return row;
}

function editPool(row) {
  const { pool } = row;
  state.editing = pool.code;
  const number = (label, value, max, required) => el('input', { type: 'number', min: 1, max, value, required, ariaLabel: label });
  const calls = number(`Most calls at once of ${pool.code}`, pool.concurrency, 65535, true);
  const rate = number(`Most messages a minute of ${pool.code}, empty for no limit`, pool.rateLimitPerMinute ?? '', 4294967295, false);
  rate.placeholder = 'no limit';
  const save = el('button', { textContent: 'Save' });
  const cancel = el('button', { type: 'button', textContent: 'Cancel' });
  const form = el('form', { className: 'edit' }, el('label', {}, 'calls ', calls), el('label', {}, 'per minute ', rate), save, cancel);
  const cell = el('td', { colSpan: 6 }, form);
  const plain = [...row.children].slice(1);
  const end = () => {
    state.editing = null;
    cell.replaceWith(...plain);
    row.querySelector('button').focus();
  };
  cancel.addEventListener('click', end);
  form.addEventListener('keydown', (event) => event.key === 'Escape' && end());
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const body = { concurrency: calls.valueAsNumber, rateLimitPerMinute: rate.value === '' ? null : rate.valueAsNumber };
    act(save, () => `Pool ${pool.code} changed.`, async () => {
      await api(`/api/pools/${encodeURIComponent(pool.code)}`, 'PATCH', body);
      end();
    });
  });
  plain[0].before(cell);
  plain.forEach((one) => one.remove());
  calls.focus();
}

function showGroups(groups) {
  rows(find('#groups tbody'), groups, (group) => `${group.pool}\n${group.group}`,
    () => el('tr', {}, el('th', { scope: 'row', className: 'name' }), el('td', { className: 'name' }), el('td', { className: 'n' }),
      el('td', { className: 'n' }), el('td', { className: 'n' }), el('td', { className: 'words' })),
    (row, group) => {
      const resumes = group.resumesInS === null ? '' : `, on in ${ago(group.resumesInS)}`;
      cells(row, [group.group, group.pool, whole(group.depth), ago(group.ageS), whole(group.attempts), group.waitsFor + resumes]);
      row.firstChild.title = `head: ${group.head}, shard ${group.shard}`;
    }, 'No group has messages.');
}

function showWarnings({ unacknowledged, warnings }) {
  find('#warnings-count').textContent = unacknowledged ? whole(unacknowledged) : '';
  find('#warnings-clear').disabled = !warnings.length;
  rows(find('#warnings'), warnings.slice(0, 50), (warning) => warning.id, (warning) => {
    const seen = el('button', { type: 'button', textContent: 'Acknowledge', ariaLabel: `Acknowledge ${warning.code} of ${warning.source}` });
    seen.addEventListener('click', () => act(seen, () => `${warning.code} acknowledged.`, () => api(`/api/warnings/${warning.id}/acknowledge`, 'POST')));
    const item = el('li', {}, el('span', { className: 'tag' }), el('b'), el('span', { className: 'source' }), el('p'), el('span', { className: 'dim' }), seen);
    item.dataset.severity = warning.severity;
    return item;
  }, (item, warning) => {
    const times = warning.count > 1 ? `${whole(warning.count)} times, last ` : '';
    cells(item, [warning.severity.toLowerCase(), warning.code, warning.source, warning.message,
      `${times}${ago((Date.now() - warning.lastUnixMs) / 1000)} ago`]);
    item.classList.toggle('acknowledged', warning.acknowledged);
    item.lastChild.hidden = warning.acknowledged;
  }, 'None. All quiet.');
}

find('#warnings-clear').addEventListener('click', (event) => {
  act(event.target, (said) => `${said.cleared} warnings cleared.`, () => api('/api/warnings', 'DELETE'));
});

function showShards(shards) {
  rows(find('#shards tbody'), shards, (shard) => shard.shard,
    () => el('tr', {}, el('th', { scope: 'row' }), el('td'), ...Array.from({ length: 4 }, () => el('td', { className: 'n' }))),
    (row, shard) => {
      cells(row, [`${shard.shard}, core ${shard.core}`, null, whole(shard.ringDepth), whole(shard.groups), whole(shard.active), whole(shard.connections)]);
      meter(row.children[1], shard.busyRatio, 1, `${Math.round(shard.busyRatio * 100)} %`, 0.9);
    });
}

function showTargets(targets) {
  rows(find('#targets tbody'), targets.slice(0, 20), (target) => target.origin,
    () => el('tr', {}, el('th', { scope: 'row', className: 'name' }), el('td', {}, el('span', { className: 'tag' })),
      ...Array.from({ length: 3 }, () => el('td', { className: 'n' }))),
    (row, target) => {
      cells(row, [target.origin, null, whole(target.active), whole(target.connections), compact(target.failuresTotal)]);
      const tag = row.children[1].firstChild;
      const wait = target.retryInMs === null ? '' : `, ${ago(target.retryInMs / 1000)} left`;
      tag.textContent = target.breaker.toLowerCase() + wait;
      tag.dataset.tone = { ADMITTING: 'good', PROBING: 'warn', TRIPPED: 'bad' }[target.breaker];
    }, 'No target was called yet.');
}

function showQueues(queues) {
  rows(find('#queues tbody'), queues, (queue) => queue.name,
    () => el('tr', {}, el('th', { scope: 'row', className: 'name' }), el('td', {}, el('span', { className: 'tag' })),
      ...Array.from({ length: 3 }, () => el('td', { className: 'n' }))),
    (row, queue) => {
      cells(row, [queue.name, null, queue.depth === null ? '–' : compact(queue.depth), compact(queue.ackedTotal), compact(queue.nackedTotal)]);
      row.firstChild.title = `${queue.uri}, ${queue.ordering}`;
      const tag = row.children[1].firstChild;
      tag.textContent = !queue.healthy ? queue.error ?? `silent for ${ago(queue.sincePollS)}` : queue.paused ? 'paused: no room' : 'polling';
      tag.dataset.tone = !queue.healthy ? 'bad' : queue.paused ? 'warn' : 'good';
    }, 'No queue is configured.');
}

// Dead letters.

function deadFilter() {
  const filter = {};
  for (const [name, value] of new FormData(find('#dead-filter'))) {
    if (value.trim()) filter[name] = name === 'status' ? Number(value) : value.trim();
  }
  return filter;
}

async function showDead() {
  const query = new URLSearchParams({ ...deadFilter(), offset: state.deadOffset, limit: PAGE_ROWS });
  const { total, items } = await api(`/api/dead-letters?${query}`);
  if (state.deadOffset && state.deadOffset >= total) {
    state.deadOffset = Math.max(0, Math.floor((total - 1) / PAGE_ROWS) * PAGE_ROWS);
    return;
  }
  find('#dead-count').textContent = total ? whole(total) : '';
  find('#dead-retry').disabled = !total;
  find('#dead-newer').disabled = !state.deadOffset;
  find('#dead-older').disabled = state.deadOffset + items.length >= total;
  find('#dead-range').textContent = items.length ? `${state.deadOffset + 1}–${state.deadOffset + items.length} of ${whole(total)}` : '';
  rows(find('#dead tbody'), items, (letter) => letter.number, deadRow, (row, letter) => {
    const status = letter.status ? ` ${letter.status}` : '';
    cells(row, [letter.id || `#${letter.number}`, letter.reason.toLowerCase() + status, letter.pool, letter.target, ago(Date.now() / 1000 - letter.atUnixS)]);
    row.children[1].title = letter.detail;
    row.children[3].title = letter.target;
  }, 'None.');
}

function deadRow(letter) {
  const open = el('button', { type: 'button', textContent: 'Show', ariaLabel: `Show dead letter ${letter.number}` });
  const retry = el('button', { type: 'button', textContent: 'Retry', ariaLabel: `Retry dead letter ${letter.number}` });
  open.addEventListener('click', () => act(open, () => '', async () => explainWith(await api(`/api/dead-letters/${letter.number}`))));
  retry.addEventListener('click', () => retryDead(retry, { numbers: [letter.number] }));
  return el('tr', {}, el('th', { scope: 'row', className: 'name' }), el('td', { className: 'words' }), el('td', { className: 'name' }), el('td', { className: 'name' }),
    el('td', { className: 'n' }), el('td', { className: 'n' }, open, retry));
}

function retryDead(button, filter) {
  act(button, (said) => `${said.retried} dead letters are on their way again.`, () => api('/api/dead-letters/retry', 'POST', filter));
}

find('#dead-retry').addEventListener('click', (event) => {
  const filter = deadFilter();
  const meant = Object.keys(filter).length ? filter : { all: true };
  if (confirm(`Send ${find('#dead-count').textContent} dead letters on their way again?`)) retryDead(event.target, meant);
});
find('#dead-filter').addEventListener('submit', (event) => event.preventDefault());
find('#dead-filter').addEventListener('input', () => {
  state.deadOffset = 0;
  refresh();
});
find('#dead-newer').addEventListener('click', () => turn(-PAGE_ROWS));
find('#dead-older').addEventListener('click', () => turn(PAGE_ROWS));

function turn(by) {
  state.deadOffset = Math.max(0, state.deadOffset + by);
  refresh();
}

// Explain.

find('#explain-form').addEventListener('submit', async (event) => {
  event.preventDefault();
  const what = find('#explain-what').value.trim();
  if (!what) return;
  try {
    const said = await api(`/api/explain?${new URLSearchParams({ what })}`);
    explain(`${said.kind.toLowerCase()} ${said.what}`, said.summary, said.facts.map(({ name, value }) => [name, value]));
  } catch (error) {
    explain(what, error.message, []);
  }
});

function explainWith(letter) {
  const facts = ['id', 'queue', 'pool', 'group', 'target', 'attempts', 'body'].map((name) => [name, String(letter[name] ?? '')]);
  explain(`dead letter ${letter.number}`, letter.detail, facts);
}

function explain(title, summary, facts) {
  const close = el('button', { type: 'button', textContent: 'Close' });
  const panel = find('#explained');
  close.addEventListener('click', () => { panel.hidden = true; });
  const list = el('dl', {}, ...facts.filter(([, value]) => value).flatMap(([name, value]) => [el('dt', { textContent: name }), el('dd', { textContent: value })]));
  panel.replaceChildren(el('div', { className: 'head' }, el('h2', { textContent: title }), close), el('p', { textContent: summary }), list);
  panel.hidden = false;
}
