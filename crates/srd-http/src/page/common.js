'use strict';
const PERIOD_MS = 1000, HISTORY = 120;
const SVG = 'http://www.w3.org/2000/svg';
const $ = id => document.getElementById(id);

// Everything that is asked for becomes text, never markup.
function make(tag, attributes, ...children) {
  const isSvg = ['svg', 'rect', 'line', 'polyline', 'text', 'title', 'g'].includes(tag);
  const element = isSvg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === 'onclick') element.addEventListener('click', value);
    else element.setAttribute(name, value);
  }
  element.append(...children.map(child => child instanceof Node ? child : String(child)));
  return element;
}
const show = (id, ...children) => $(id).replaceChildren(...children);

function rate(bps) {
  const units = [[1e9, 'Gb/s'], [1e6, 'Mb/s'], [1e3, 'kb/s']];
  const [size, unit] = units.find(([size]) => bps >= size) || [1, 'b/s'];
  const value = bps / size;
  return value.toFixed(size === 1 || value >= 100 ? 0 : value >= 10 ? 1 : 2) + ' ' + unit;
}
const count = n => n >= 1e6 ? (n / 1e6).toFixed(1) + ' M' : Math.round(n).toLocaleString('en');
const micros = us => us >= 1000 ? (us / 1000).toFixed(1) + ' ms' : us.toFixed(us < 100 ? 1 : 0) + ' µs';
const percent = share => (100 * share).toFixed(share > 0 && share < .1 ? 1 : 0) + ' %';
const sum = (list, of) => list.reduce((total, item) => total + of(item), 0);
function span(seconds) {
  if (seconds < 90) return seconds.toFixed(0) + ' s';
  if (seconds < 5400) return (seconds / 60).toFixed(0) + ' min';
  return seconds < 172800 ? (seconds / 3600).toFixed(1) + ' h' : (seconds / 86400).toFixed(1) + ' days';
}

// How much a counter grew per second between two snapshots of one run of the daemon.
function growth(now, before, of) {
  if (!before || now.uptime_s <= before.uptime_s) return 0;
  const grown = of(now) - of(before);
  return grown > 0 ? grown / (now.uptime_s - before.uptime_s) : 0;
}

// Pairs over the time that HISTORY periods of a second take, as two lines in the colours of sent
// and received.
function overTime(history) {
  const width = 1000, height = 170, left = 86, bottom = 20, top = 12;
  const most = nice(Math.max(1e3, ...history.flat()));
  const x = at => left + (width - left - 8) * (at + HISTORY - history.length) / (HISTORY - 1);
  const y = bps => height - bottom - (height - bottom - top) * bps / most;
  const svg = make('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': 'throughput over time' });
  for (const part of [0, .5, 1]) {
    svg.append(make('line', { class: 'grid', x1: left, x2: width - 8, y1: y(most * part), y2: y(most * part) }),
      make('text', { x: left - 8, y: y(most * part) + 4, 'text-anchor': 'end' }, rate(most * part)));
  }
  svg.append(make('text', { x: left, y: height - 4 }, '2 min ago'),
    make('text', { x: width - 8, y: height - 4, 'text-anchor': 'end' }, 'now'));
  for (const [which, color] of [[1, '--rx'], [0, '--tx']]) {
    const points = history.map((pair, at) => `${x(at).toFixed(1)},${y(pair[which]).toFixed(1)}`).join(' ');
    svg.append(make('polyline', { points, fill: 'none', style: `stroke: var(${color})`, 'stroke-width': 2,
      'stroke-linejoin': 'round', 'stroke-linecap': 'round' }));
  }
  return svg;
}
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find(step => step * power >= value) * power;
}

const cell = (text, number) => make('td', number ? { class: 'n' } : {}, text);
function heads(names) {
  const head = ([name, number]) => make('th', number ? { class: 'n', scope: 'col' } : { scope: 'col' }, name);
  return make('thead', {}, make('tr', {}, ...names.map(head)));
}

function alert(text) {
  $('alert').className = text ? 'shown' : '';
  show('alert', text);
}
