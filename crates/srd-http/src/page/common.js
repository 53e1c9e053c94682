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
// A button that has the keyboard keeps it when its place is drawn again: `data-key` names it.
function show(id, ...children) {
  const place = $(id), active = document.activeElement;
  const key = place.contains(active) ? active.dataset.key : undefined;
  place.replaceChildren(...children);
  const again = key === undefined ? null : [...place.querySelectorAll('[data-key]')].find(e => e.dataset.key === key);
  if (again) again.focus();
}
const choice = (name, isChosen, onclick) => make('td', {}, make('button',
  { onclick, type: 'button', 'data-key': name, 'aria-pressed': String(isChosen) }, name));

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

// How wide a drawing is, so that its text is as large as that around it.
const widthOf = id => Math.max(280, $(id).clientWidth || 1000);
const clock = ms => new Date(ms).toLocaleTimeString('en-GB');

// What is wrong now, each thing with the moment since when. One that was away for CALM_MS is over.
const CALM_MS = 3000, troubles = new Map();
function since(found, isFirst) {
  const at = Date.now();
  for (const { key, what, text } of found) {
    const { from } = troubles.get(key) || { from: isFirst ? null : at };
    troubles.set(key, { from, what, text, last: at });
  }
  for (const [key, { last }] of troubles) if (at - last > CALM_MS) troubles.delete(key);
  return [...troubles.values()];
}
// Says it before all else: how many things, in a sentence that is read aloud when it changes, and each of them.
// `isFirst`: nothing was seen before, so that nothing is known of the time before the page.
function showNow(found, isFirst, calm, sentence) {
  const list = since(found, isFirst), said = list.length ? sentence(list.length) : calm;
  $('now').className = list.length ? 'bad' : 'calm';
  if ($('now-said').textContent !== said) show('now-said', said);
  const moment = from => from === null ? 'since before this page was opened'
    : `since ${clock(from)}, for ${span((Date.now() - from) / 1000)}`;
  show('now-list', ...list.map(({ what, text, from }) =>
    make('li', {}, make('b', {}, what), ' ' + text + ' ', make('span', { class: 'soft' }, moment(from)))));
  return list.length;
}

// Sent, received and whether something was wrong, over the time that HISTORY periods of a second take: two lines,
// and a band for each period in which something was. `levels`: limits, each with its name. One far above is left
// out, so that it does not press all else to the ground.
const LEVEL_FAR = 4;
function overTime(history, levels = []) {
  const width = widthOf('rates'), height = 190, left = 70, bottom = 20, top = 18;
  const highest = Math.max(1e3, ...history.flatMap(([sent, received]) => [sent, received]));
  const near = levels.filter(([bps]) => bps <= highest * LEVEL_FAR);
  const most = nice(Math.max(highest, ...near.map(([bps]) => bps)));
  const x = at => left + (width - left - 8) * (at + HISTORY - history.length) / (HISTORY - 1);
  const y = bps => height - bottom - (height - bottom - top) * bps / most;
  const last = history[history.length - 1] || [0, 0];
  const label = `throughput over the last two minutes; now ${rate(last[0])} sent, ${rate(last[1])} received`;
  const svg = make('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': label });
  const step = (width - left - 8) / (HISTORY - 1);
  history.forEach(([, , wrong], at) => wrong && at > 0 && svg.append(make('rect', { class: 'wrong',
    x: (x(at) - step).toFixed(1), y: top, width: step.toFixed(1), height: height - bottom - top })));
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
  for (const [bps, name] of near) {
    const up = y(bps) - 4 > top + 8;
    svg.append(make('line', { class: 'level', x1: left, x2: width - 8, y1: y(bps), y2: y(bps) }),
      make('text', { class: 'level', x: left + 4, y: y(bps) + (up ? -4 : 13) }, `${name}: ${rate(bps)}`));
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

// A list of rows, or `none`.
function tableOr(id, names, rows) {
  const none = names.map(([, number], at) => cell(at === 0 ? 'none' : number ? '0' : '', number));
  show(id, heads(names), make('tbody', {}, ...(rows.length ? rows : [make('tr', {}, ...none)])));
}

function alert(text) {
  $('alert').className = text ? 'shown' : '';
  if ($('alert').textContent !== text) show('alert', text);
}

// Asks for the status and draws it; one question at a time.
let asking = false;
async function ask(query, draw, name) {
  if (asking) return;
  asking = true;
  try {
    const answer = await fetch('status.json' + query, { cache: 'no-store', signal: AbortSignal.timeout(5000) });
    if (!answer.ok) throw new Error(await answer.text());
    draw(await answer.json());
  } catch (error) {
    alert(`The ${name} does not answer: ${error.message} These figures are old.`);
  } finally {
    asking = false;
  }
}
