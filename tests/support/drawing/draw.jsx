// Draws one board (#uid in the address) with Grafana's own components, from data.json.
import '@fontsource/inter/latin-400.css';
import '@fontsource/inter/latin-500.css';
import React from 'react';
import { createRoot } from 'react-dom/client';
import { createTheme, dateTime, dateTimeFormat, getDisplayValueAlignmentFactors, ThemeContext } from '@grafana/data';
import { BarGauge, BigValue, GlobalStyles, PanelChrome, Table, TimeSeries, VizRepeater } from '@grafana/ui';
import data from './data.json';
import { buckets, framesOf, marksOf } from './frames.js';
import { StateTimeline } from './timeline.jsx';

const theme = createTheme({ colors: { mode: 'light' } });
const CELL = { width: 1440 / 24, height: 38 }; // Grafana's: 30 pixels and a gap of 8
const HEADER = 46;
const timeRange = { from: dateTime(data.from * 1000), to: dateTime(data.to * 1000) };
timeRange.raw = { from: timeRange.from, to: timeRange.to };

// Annotations as Grafana draws them: a dashed line where one begins, a shade while it lasts.
const drawMarks = (marks) => (plot) => {
  const { ctx, bbox } = plot;
  const at = (time) => Math.min(Math.max(plot.valToPos(time, 'x', true), bbox.left), bbox.left + bbox.width);
  ctx.save();
  for (const { from, to, color } of marks) {
    ctx.strokeStyle = ctx.fillStyle = theme.visualization.getColorByName(color);
    ctx.globalAlpha = 0.1;
    ctx.fillRect(at(from), bbox.top, at(to) - at(from), bbox.height);
    ctx.globalAlpha = 1;
    ctx.setLineDash([5, 5]);
    ctx.beginPath();
    ctx.moveTo(at(from), bbox.top);
    ctx.lineTo(at(from), bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
};

function Stat({ frames, width, height }) {
  return <div style={{ display: 'flex' }}>{frames.map((frame, n) => {
    const field = frame.fields[1];
    const value = { ...field.display(field.values[0]), title: frames.length > 1 ? field.config.displayNameFromDS : undefined };
    return <BigValue key={n} theme={theme} value={value} width={width / frames.length} height={height} colorMode="value" graphMode="none" textMode="auto" justifyMode="auto" />;
  })}</div>;
}

function Bars({ panel, frames, width, height }) {
  const shown = buckets(frames);
  const field = { ...frames[0].fields[1].config, max: Math.max(...shown.map(({ numeric }) => numeric)) };
  const { orientation, displayMode } = panel.options;
  const bar = ({ value, width, height }) => (
    <BarGauge {...{ value, width, height, field, orientation, displayMode, theme }} itemSpacing={10} showUnfilled alignmentFactors={getDisplayValueAlignmentFactors(shown.map((display) => ({ display })))} />
  );
  return <VizRepeater {...{ width, height, orientation }} source={frames} getValues={() => shown} renderValue={bar} renderCounter={1} itemSpacing={10} minVizHeight={16} />;
}

function Inside({ panel, frames, marks, width, height }) {
  if (!frames.some((frame) => frame.length)) {
    return <div style={{ display: 'grid', placeItems: 'center', height, color: theme.colors.text.secondary }}>{panel.fieldConfig.defaults.noValue}</div>;
  }
  switch (panel.type) {
    case 'timeseries':
      return (
        <TimeSeries frames={frames} timeRange={timeRange} timeZone="utc" width={width} height={height} legend={panel.options.legend} structureRev={1}>
          {(config) => {
            config.addHook('draw', drawMarks(marks));
            return null;
          }}
        </TimeSeries>
      );
    case 'state-timeline':
      return <StateTimeline frames={frames} from={data.from * 1000} to={data.to * 1000} width={width} height={height} theme={theme} />;
    case 'table':
      return <Table data={frames[0]} width={width} height={height} cellHeight="sm" initialSortBy={panel.options.sortBy} />;
    case 'stat':
      return <Stat frames={frames} width={width} height={height} />;
    case 'bargauge':
      return <Bars panel={panel} frames={frames} width={width} height={height} />;
    default:
      throw new Error(`no component draws ${panel.type}`);
  }
}

function Panel({ panel, frames, marks }) {
  const { x, y, w, h } = panel.gridPos;
  const box = { position: 'absolute', left: x * CELL.width + 8, top: y * CELL.height + HEADER };
  const [width, height] = [w * CELL.width - 8, h * CELL.height - 8];
  if (panel.type === 'row') {
    return <div style={{ ...box, fontWeight: 500, fontSize: 16, padding: '4px 0' }}>{panel.title}</div>;
  }
  return (
    <div style={box}>
      <PanelChrome title={panel.title} description={panel.description} width={width} height={height}>
        {(innerWidth, innerHeight) => <Inside panel={panel} frames={frames} marks={marks} width={innerWidth} height={innerHeight} />}
      </PanelChrome>
    </div>
  );
}

function Header({ board }) {
  const time = (at) => dateTimeFormat(at * 1000, { timeZone: 'utc', format: 'YYYY-MM-DD HH:mm' });
  return (
    <div style={{ display: 'flex', justifyContent: 'space-between', padding: '12px 8px 0 8px', width: 1440 }}>
      <span style={{ fontSize: 18, fontWeight: 500 }}>{board.title}</span>
      <span style={{ color: theme.colors.text.secondary }}>{time(data.from)} to {time(data.to)} UTC</span>
    </div>
  );
}

// Widths of axes and names are measured in Grafana's font, so it has to be there first.
await Promise.all(['400', '500'].map((weight) => document.fonts.load(`${weight} 12px Inter`)));

const uid = location.hash.slice(1);
const { board, answers, marks } = data.boards.find((one) => one.board.uid === uid);
const shown = await Promise.all(board.panels.map(async (panel) => [panel, await framesOf(panel, answers, theme)]));
const drawn = marksOf(board, marks, data.step);
createRoot(document.getElementById('root')).render(
  <ThemeContext.Provider value={theme}>
    <GlobalStyles />
    <div style={{ position: 'relative', background: theme.colors.background.canvas, minHeight: '100vh', width: 1456 }}>
      <Header board={board} />
      {shown.map(([panel, frames]) => <Panel key={panel.id} panel={panel} frames={frames} marks={drawn} />)}
    </div>
  </ThemeContext.Provider>
);
