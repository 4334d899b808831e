// Draws the panels of one dashboard (#uid in the address) with Grafana's own components, from data.json.
import React from 'react';
import { createRoot } from 'react-dom/client';
import {
  createTheme, FieldType, getDisplayProcessor, getFieldDisplayName, standardTransformers, standardTransformersRegistry,
  ThemeContext, toDataFrame, transformDataFrame, dateTime,
} from '@grafana/data';
import { BarGauge, BigValue, GlobalStyles, PanelChrome, Table, TimeSeries } from '@grafana/ui';
import { lastValueFrom } from 'rxjs';
import data from './data.json';

const theme = createTheme({ colors: { mode: 'light' } });
const CELL = { width: 1440 / 24, height: 38 };
const timeRange = { from: dateTime(data.from * 1000), to: dateTime(data.to * 1000) };
timeRange.raw = { from: timeRange.from, to: timeRange.to };
standardTransformersRegistry.setInit(() =>
  ['merge', 'organize'].map((id) => {
    const transformation = Object.values(standardTransformers).find((one) => one.id === id);
    return { id, name: id, transformation: async () => transformation, editor: () => null };
  })
);

const legend = (format, labels) => format.replace(/\{\{\s*(.+?)\s*\}\}/g, (_, name) => labels[name] ?? '');
const named = (format, labels) => (format ? legend(format, labels) : JSON.stringify(labels));

// One frame for each series.
function series(target, found) {
  return found.map(({ metric, values, value }) => {
    const points = values ?? [value];
    return toDataFrame({
      refId: target.refId,
      fields: [
        { name: 'Time', type: FieldType.time, values: points.map(([at]) => at * 1000), config: { interval: 1000 } },
        {
          name: 'Value', type: FieldType.number, labels: metric, values: points.map(([, number]) => Number(number)),
          config: { displayNameFromDS: named(target.legendFormat, metric) },
        },
      ],
    });
  });
}

// One frame with a column for each label.
function table(target, found, single) {
  const labels = [...new Set(found.flatMap(({ metric }) => Object.keys(metric)))].sort();
  return toDataFrame({
    refId: target.refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: found.map(({ value }) => value[0] * 1000) },
      ...labels.map((name) => ({ name, type: FieldType.string, values: found.map(({ metric }) => metric[name] ?? '') })),
      {
        name: single ? 'Value' : `Value #${target.refId}`, type: FieldType.number,
        values: found.map(({ value }) => Number(value[1])),
      },
    ],
  });
}

// What the panel says of a field: its defaults, then the overrides that match its name.
function configure(frame, { defaults, overrides }, frames) {
  for (const field of frame.fields) {
    if (field.type === FieldType.time) {
      field.display = getDisplayProcessor({ field, theme });
      continue;
    }
    field.config = { ...structuredClone(defaults), ...field.config, custom: { drawStyle: 'line', ...defaults.custom } };
    const name = getFieldDisplayName(field, frame, frames);
    for (const { matcher, properties } of overrides) {
      const by = matcher.id === 'byName' ? name === matcher.options : new RegExp(matcher.options.slice(1, -1)).test(name);
      for (const { id, value } of by ? properties : []) {
        const [key, inner] = id.split('.');
        inner ? (field.config.custom[inner] = value) : (field.config[key] = value);
      }
    }
    field.display = getDisplayProcessor({ field, theme });
  }
  return frame;
}

async function framesOf(panel, answers) {
  const pairs = panel.targets.map((target) => [target, answers[`${panel.id}${target.refId}`]]);
  let frames = pairs.flatMap(([target, found]) =>
    panel.type === 'table' ? [table(target, found, pairs.length === 1)] : series(target, found)
  );
  if (panel.transformations) {
    frames = await lastValueFrom(transformDataFrame(panel.transformations, frames));
  }
  frames.forEach((frame, n) => frame.fields.forEach((field) => (field.state = { seriesIndex: n })));
  return frames.map((frame) => configure(frame, panel.fieldConfig, frames));
}

// Cumulative buckets as counts, in the order of their bounds.
function buckets(frames) {
  const bound = (frame) => Number(frame.fields[1].labels.le.replace('+Inf', 'Infinity'));
  let before = 0;
  return frames.sort((one, other) => bound(one) - bound(other)).map((frame) => {
    const [total, field] = [frame.fields[1].values[0], frame.fields[1]];
    const shown = { ...field.display(total - before), title: field.config.displayNameFromDS };
    before = total;
    return shown;
  });
}

function Inside({ panel, frames, width, height }) {
  if (!frames.some((frame) => frame.length)) {
    return <div style={{ padding: 20 }}>{panel.fieldConfig.defaults.noValue}</div>;
  }
  switch (panel.type) {
    case 'timeseries':
      return <TimeSeries frames={frames} timeRange={timeRange} timeZone="utc" {...{ width, height }} legend={panel.options.legend} structureRev={1} />;
    case 'table':
      return <Table data={frames[0]} {...{ width, height }} cellHeight="sm" initialSortBy={panel.options.sortBy} />;
    case 'stat':
      return <div style={{ display: 'flex' }}>{frames.map((frame, n) => {
        const value = frame.fields[1].display(frame.fields[1].values[0]);
        value.title = frames.length > 1 ? frame.fields[1].config.displayNameFromDS : undefined;
        return <BigValue key={n} theme={theme} value={value} width={width / frames.length} height={height} colorMode="value" graphMode="none" textMode="auto" justifyMode="auto" />;
      })}</div>;
    case 'bargauge': {
      const shown = buckets(frames);
      const field = { ...frames[0].fields[1].config, max: Math.max(...shown.map(({ numeric }) => numeric)) };
      return shown.map((value, n) => (
        <BarGauge key={n} value={value} field={field} width={width} height={height / shown.length} orientation="horizontal" displayMode="basic" showUnfilled theme={theme} />
      ));
    }
    default:
      return <div style={{ padding: 20 }}>{panel.type}: not among the components; series: {frames.map((f) => f.fields[1].config.displayNameFromDS).join(', ')}</div>;
  }
}

function Panel({ panel, frames }) {
  const { x, y, w, h } = panel.gridPos;
  const box = { position: 'absolute', left: x * CELL.width, top: y * CELL.height };
  const [width, height] = [w * CELL.width - 8, h * CELL.height - 8];
  if (panel.type === 'row') {
    return <div style={{ ...box, fontWeight: 600, padding: 8 }}>{panel.title}</div>;
  }
  return <div style={box}>
    <PanelChrome title={panel.title} description={panel.description} width={width} height={height}>
      {(innerWidth, innerHeight) => <Inside panel={panel} frames={frames} width={innerWidth} height={innerHeight} />}
    </PanelChrome>
  </div>;
}

const uid = location.hash.slice(1) || data.dashboards[0].dashboard.uid;
const { dashboard, answers } = data.dashboards.find((one) => one.dashboard.uid === uid);
const shown = await Promise.all(dashboard.panels.map(async (panel) => [panel, panel.targets ? await framesOf(panel, answers) : []]));
createRoot(document.getElementById('root')).render(
  <ThemeContext.Provider value={theme}>
    <GlobalStyles />
    <div style={{ position: 'relative', background: theme.colors.background.canvas, height: 5000, width: 1440 }}>
      {shown.map(([panel, frames]) => <Panel key={panel.id} panel={panel} frames={frames} />)}
    </div>
  </ThemeContext.Provider>
);
