// Draws the chart of a gate with uPlot, whose cursor reads single windows; without a script the picture of the page stays.
"use strict";

const HEIGHT = { value: 240, n: 90 };

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function faded(name, alpha) {
  const probe = document.createElement("canvas").getContext("2d");
  probe.fillStyle = color(name);
  return probe.fillStyle + Math.round(255 * alpha).toString(16).padStart(2, "0");
}

// Shades the side of the threshold that keeps the gate and the time in which the alarm fired.
function background(drawn) {
  return (plot) => {
    const { ctx, bbox } = plot;
    const y = Math.min(Math.max(plot.valToPos(drawn.threshold, "y", true), bbox.top), bbox.top + bbox.height);
    ctx.save();
    ctx.fillStyle = color("--good");
    const [top, bottom] = drawn.at_least ? [bbox.top, y] : [y, bbox.top + bbox.height];
    ctx.fillRect(bbox.left, top, bbox.width, bottom - top);
    ctx.fillStyle = faded("--fail", 0.16);
    for (const [begin, end] of drawn.alarms) {
      const left = Math.max(plot.valToPos(begin, "x", true), bbox.left);
      const right = Math.min(plot.valToPos(end, "x", true), bbox.left + bbox.width);
      ctx.fillRect(left, bbox.top, Math.max(2, right - left), bbox.height);
    }
    ctx.restore();
  };
}

// Draws the numbered lines of what changed.
function marks(drawn) {
  return (plot) => {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = color("--soft");
    ctx.setLineDash([2, 3]);
    ctx.textAlign = "left";
    drawn.marks.forEach((time, place) => {
      const x = plot.valToPos(time, "x", true);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.fillText(String(place + 1), x + 4, bbox.top + 12);
    });
    ctx.restore();
  };
}

function clock(plot, times) {
  const isShort = times.some((seconds) => seconds % 60);
  const isLong = plot.scales.x.max - plot.scales.x.min > 2 * 86400;
  return times.map((seconds) => {
    const text = new Date(seconds * 1000).toISOString();
    return isLong ? `${text.slice(5, 10)} ${text.slice(11, 16)}` : text.slice(11, isShort ? 19 : 16);
  });
}

function moment(_, seconds) {
  return seconds === null || seconds === undefined ? "–" : new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ");
}

function axis(size) {
  return { stroke: color("--soft"), grid: { stroke: color("--edge"), width: 0.5 }, ticks: { show: false }, size };
}

// A value as the page writes it.
function shown(drawn) {
  const write = (value) => (drawn.shares ? `${(100 * value).toFixed(1)} %` : value.toFixed(2));
  return (_, value) => (value === null || value === undefined ? "–" : write(value));
}

// Reads the last window that has a value until the cursor points at another: a legend is never empty.
function newest(drawn) {
  const place = drawn.value.findLastIndex((value) => value !== null);
  return (plot) => plot.cursor.idx === null || plot.cursor.idx === undefined ? plot.setLegend({ idx: place }, false) : null;
}

function options(drawn, width, height) {
  return {
    width,
    height,
    padding: [12, 24, 0, 0],
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "UTC"),
    scales: { x: { range: () => [drawn.begin, drawn.end] } },
    cursor: { drag: { x: false, y: false }, sync: { key: "gate" } },
  };
}

function drawValue(place, drawn) {
  const line = color("--link");
  const value = shown(drawn);
  const interval = (_, upper, __, place) => upper === null || upper === undefined ? "–" : `${value(_, drawn.lower[place])} to ${value(_, upper)}`;
  const tick = (number) => (drawn.shares ? `${Number((100 * number).toPrecision(6))} %` : String(number));
  const none = { stroke: "transparent", width: 0, points: { show: false } };
  const figure = {
    ...options(drawn, place.clientWidth, HEIGHT.value),
    axes: [{ ...axis(30), space: 90, values: clock }, { ...axis(60), values: (_, ticks) => ticks.map(tick) }],
    legend: { markers: { show: false } },
    series: [
      { label: "UTC", value: moment },
      { label: "value", stroke: line, width: 2, points: { size: 5, fill: line }, value },
      { ...none, label: "95 % interval", value: interval },
      { ...none, class: "unlisted" },
      { label: "limit", stroke: color("--soft"), dash: [6, 4], width: 1.5, points: { show: false }, value },
      { ...none, label: "n", scale: "n" },
    ],
    bands: [{ series: [2, 3], fill: faded("--link", 0.2) }],
    hooks: { drawClear: [background(drawn)], draw: [marks(drawn)], ready: [newest(drawn)], setCursor: [newest(drawn)] },
  };
  const threshold = drawn.times.map(() => drawn.threshold);
  return new uPlot(figure, [drawn.times, drawn.value, drawn.upper, drawn.lower, threshold, drawn.n], place);
}

function drawNumber(place, drawn) {
  const figure = {
    ...options(drawn, place.clientWidth, HEIGHT.n),
    padding: [10, 24, 8, 0],
    axes: [{ ...axis(0), show: false }, { ...axis(60), incrs: [1, 2, 5].flatMap((k) => [k, 10 * k, 100 * k, 1e3 * k, 1e4 * k, 1e5 * k]).sort((a, b) => a - b) }],
    legend: { show: false },
    series: [
      {},
      { fill: faded("--undecided", 0.6), paths: uPlot.paths.bars({ size: [0.8, 100] }), points: { show: false } },
    ],
  };
  figure.scales.y = { range: (_, least, most) => [0, Math.max(1, most)] };
  return new uPlot(figure, [drawn.times, drawn.n], place);
}

let plots = [];

function draw() {
  const place = document.getElementById("plot");
  const data = document.getElementById("drawn");
  plots.forEach((plot) => plot.destroy());
  plots = [];
  if (!place || !data) {
    return;
  }
  place.parentElement.classList.add("plotted");
  const drawn = JSON.parse(data.textContent);
  plots = [drawValue(place, drawn), drawNumber(place, drawn)];
}

document.addEventListener("refreshed", draw);
window.addEventListener("resize", draw);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
draw();
