// A line chart of the last minutes, drawn by hand as SVG: axes, and the values under the pointer or, with the
// keyboard, under the arrow keys. The legend is the readout: nothing floats over the lines.

const SVG = 'http://www.w3.org/2000/svg';
const HEIGHT = 150;
const PAD = { left: 46, right: 6, top: 8, bottom: 20 };
const SPAN_S = 300;

export class Chart {
  /** series: [{key, label, tone}], format: value → text, log: logarithmic upwards */
  constructor(root, { series, format, log = false }) {
    Object.assign(this, { root, series, format, log, samples: [], at: null });
    this.legend = root.appendChild(document.createElement('p'));
    this.legend.className = 'legend';
    this.svg = root.appendChild(document.createElementNS(SVG, 'svg'));
    this.svg.setAttribute('height', HEIGHT);
    this.svg.setAttribute('role', 'img');
    this.svg.setAttribute('tabindex', '0');
    this.svg.addEventListener('pointermove', (event) => this.point(event));
    this.svg.addEventListener('pointerleave', () => this.look(null));
    this.svg.addEventListener('blur', () => this.look(null));
    this.svg.addEventListener('keydown', (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(root);
  }

  show(samples) {
    this.samples = samples;
    this.draw();
  }

  point(event) {
    const box = this.svg.getBoundingClientRect();
    const share = (event.clientX - box.left - PAD.left) / (box.width - PAD.left - PAD.right);
    const now = this.samples.at(-1)?.unixS ?? 0;
    this.look(Math.round(now - SPAN_S * (1 - Math.min(1, Math.max(0, share)))));
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -30, PageDown: 30 }[event.key];
    if (!step || !this.samples.length) return;
    event.preventDefault();
    const now = this.samples.at(-1).unixS;
    this.look(Math.min(now, Math.max(now - SPAN_S, (this.at ?? now) + step)));
  }

  look(at) {
    this.at = at;
    this.draw();
  }

  draw() {
    const width = this.root.clientWidth;
    if (!width || !this.samples.length) return;
    const now = this.samples.at(-1).unixS;
    const seen = this.samples.filter((sample) => sample.unixS >= now - SPAN_S);
    const y = this.scale(seen);
    const x = (unixS) => PAD.left + (width - PAD.left - PAD.right) * (1 - (now - unixS) / SPAN_S);
    this.svg.setAttribute('viewBox', `0 0 ${width} ${HEIGHT}`);
    const parts = [];
    for (const tick of y.ticks) {
      parts.push(line('grid', PAD.left, y.of(tick), width - PAD.right, y.of(tick)));
      parts.push(text('tick', PAD.left - 6, y.of(tick) + 3.5, this.format(tick), 'end'));
    }
    for (let minute = 0; minute <= SPAN_S / 60; minute += 1) {
      const label = minute ? `−${minute} min` : 'now';
      parts.push(text('tick', x(now - minute * 60), HEIGHT - 5, label, minute ? 'middle' : 'end'));
    }
    for (const { key, tone } of this.series) {
      const path = seen.map((one, at) => `${at ? 'L' : 'M'}${x(one.unixS).toFixed(1)} ${y.of(one[key]).toFixed(1)}`);
      parts.push(node('path', { class: `line ${tone}`, d: path.join('') }));
    }
    const under = this.at === null ? null : nearest(seen, this.at);
    if (under) {
      parts.push(line('cross', x(under.unixS), PAD.top, x(under.unixS), HEIGHT - PAD.bottom));
      for (const { key, tone } of this.series) {
        parts.push(node('circle', { class: `point ${tone}`, cx: x(under.unixS), cy: y.of(under[key]), r: 3 }));
      }
    }
    this.svg.replaceChildren(...parts);
    this.read(under ?? seen.at(-1), now);
  }

  read(sample, now) {
    const words = this.series.map(({ key, label, tone }) => {
      const item = document.createElement('span');
      item.className = tone;
      const value = document.createElement('b');
      value.textContent = this.format(sample[key]);
      item.append(label, ' ', value);
      return item;
    });
    const when = document.createElement('span');
    when.className = 'dim';
    when.textContent = sample.unixS === now ? 'now' : new Date(sample.unixS * 1000).toLocaleTimeString();
    this.legend.replaceChildren(...words, when);
    const said = this.series.map(({ key, label }) => `${label} ${this.format(sample[key])}`).join(', ');
    this.svg.setAttribute('aria-label', `Last five minutes. ${when.textContent}: ${said}. Arrow keys look back.`);
  }

  scale(samples) {
    const values = samples.flatMap((sample) => this.series.map(({ key }) => sample[key]));
    const room = HEIGHT - PAD.top - PAD.bottom;
    if (this.log) {
      const least = Math.max(100, Math.min(...values.filter((value) => value > 0), 1e9));
      const low = Math.floor(Math.log10(least));
      const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...values, 1))));
      const of = (value) => PAD.top + room * (1 - (Math.log10(Math.max(value, 10 ** low)) - low) / (high - low));
      return { of, ticks: Array.from({ length: high - low + 1 }, (_, at) => 10 ** (low + at)) };
    }
    const step = niceStep(Math.max(...values, 1) / 3);
    const top = step * Math.max(1, Math.ceil(Math.max(...values) / step));
    const of = (value) => PAD.top + room * (1 - value / top);
    return { of, ticks: Array.from({ length: Math.round(top / step) + 1 }, (_, at) => at * step) };
  }
}

/** 1, 2 or 5 times a power of ten, at least `rough`. */
function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((times) => times * power).find((step) => step >= rough * 0.999);
}

function nearest(samples, unixS) {
  return samples.reduce((best, one) => (Math.abs(one.unixS - unixS) < Math.abs(best.unixS - unixS) ? one : best));
}

function node(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function line(tone, x1, y1, x2, y2) {
  return node('line', { class: tone, x1, y1, x2, y2 });
}

function text(tone, x, y, words, anchor) {
  const made = node('text', { class: tone, x, y, 'text-anchor': anchor });
  made.textContent = words;
  return made;
}
