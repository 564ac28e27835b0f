// Small parts of the page: elements, rows that keep their place, meters, and figures as people read them.

export const find = (selector) => document.querySelector(selector);

/** An element. Properties are set, never parsed; text children become text nodes. */
export function el(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

/** Sets the text of an element's children in order; null leaves one as it is. */
export function cells(node, texts) {
  texts.forEach((text, at) => {
    if (text !== null && node.children[at].textContent !== text) node.children[at].textContent = text;
  });
}

/** Makes `parent` hold one child per item, in order. Children with the same key stay, so that focus does too. */
export function rows(parent, items, key, make, update, none = '') {
  const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  const wanted = items.map((item) => {
    const name = String(key(item));
    const child = old.get(name) ?? make(item);
    child.dataset.key = name;
    old.delete(name);
    update(child, item);
    return child;
  });
  for (const child of old.values()) child.remove();
  wanted.forEach((child, at) => {
    if (parent.children[at] !== child) parent.insertBefore(child, parent.children[at] ?? null);
  });
  if (!items.length && none) {
    const cell = parent.tagName === 'TBODY' ? el('tr', {}, el('td', { colSpan: 9, className: 'dim', textContent: none })) : el('li', { className: 'dim', textContent: none });
    parent.replaceChildren(cell);
  }
}

/** A bar with its words; from `high` on it is marked. */
export function meter(cell, value, max, words, high = 2) {
  let bar = cell.querySelector('.meter');
  if (!bar) {
    bar = el('span', { className: 'meter' }, el('span', { className: 'fill' }), el('span', { className: 'words' }));
    cell.replaceChildren(bar);
  }
  const share = max > 0 ? Math.min(1, value / max) : 0;
  bar.firstChild.style.inlineSize = `${(share * 100).toFixed(1)}%`;
  bar.classList.toggle('high', share >= high);
  bar.lastChild.textContent = words;
}

export function whole(value) {
  return Math.round(value).toLocaleString('en');
}

/** 12, 3.4k, 18k, 2.5M. */
export function compact(value) {
  if (value < 1000) return value < 10 && value % 1 ? value.toFixed(1) : String(Math.round(value));
  const [power, sign] = value < 999_500 ? [1e3, 'k'] : value < 999_500_000 ? [1e6, 'M'] : [1e9, 'G'];
  const scaled = value / power;
  return `${scaled < 100 ? Number(scaled.toFixed(1)) : Math.round(scaled)}${sign}`;
}

/** Microseconds. */
export function latency(us) {
  if (us < 1000) return `${Math.round(us)} µs`;
  if (us < 1e6) return `${us < 10_000 ? Number((us / 1e3).toFixed(1)) : Math.round(us / 1e3)} ms`;
  return `${us < 1e7 ? Number((us / 1e6).toFixed(1)) : Math.round(us / 1e6)} s`;
}

export function bytes(value) {
  if (value < 1024) return `${value} B`;
  const power = Math.min(4, Math.floor(Math.log2(value) / 10));
  const scaled = value / 1024 ** power;
  return `${scaled < 10 ? scaled.toFixed(1) : Math.round(scaled)} ${['', 'Ki', 'Mi', 'Gi', 'Ti'][power]}B`;
}

/** Seconds as 0.4 s, 12 s, 3 min, 5 h 20, 3 d 4 h. */
export function ago(seconds) {
  const s = Math.max(0, seconds);
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172_800) return `${Math.floor(s / 3600)} h ${String(Math.floor((s % 3600) / 60)).padStart(2, '0')}`;
  return `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`;
}
