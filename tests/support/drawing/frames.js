// What a Grafana server does between a data source and a panel: frames, transformations, field configuration.
import {
  FieldType, getDisplayProcessor, getFieldDisplayName, standardTransformers, standardTransformersRegistry, toDataFrame,
  transformDataFrame,
} from '@grafana/data';
import { lastValueFrom } from 'rxjs';
import data from './data.json';

standardTransformersRegistry.setInit(() =>
  ['merge', 'organize'].map((id) => {
    const transformation = Object.values(standardTransformers).find((one) => one.id === id);
    return { id, name: id, transformation, editor: () => null };
  })
);

const filled = (format, labels) => format.replace(/\{\{\s*(.+?)\s*\}\}/g, (_, name) => labels[name] ?? '');
const named = (format, labels) => (format ? filled(format, labels) : JSON.stringify(labels));

// The points, with an empty one where some are missing: the line has a gap there.
const withGaps = (points) => points.flatMap(([at, number], n) => {
  const missing = n > 0 && at - points[n - 1][0] > 1.5 * data.step;
  return missing ? [[points[n - 1][0] + data.step, null], [at, Number(number)]] : [[at, Number(number)]];
});

// One frame for each series.
const series = (target, found) => found.map(({ metric, values, value }) => {
  const points = withGaps(values ?? [value]);
  return toDataFrame({
    refId: target.refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: points.map(([at]) => at * 1000), config: { interval: data.step * 1000 } },
      {
        name: 'Value', type: FieldType.number, labels: metric, values: points.map(([, number]) => number),
        config: { displayNameFromDS: named(target.legendFormat, metric) },
      },
    ],
  });
});

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
function configure(frame, { defaults, overrides }, frames, theme) {
  for (const field of frame.fields) {
    if (field.type !== FieldType.time) {
      field.config = { ...structuredClone(defaults), ...field.config, custom: { drawStyle: 'line', ...defaults.custom } };
      const name = getFieldDisplayName(field, frame, frames);
      for (const { matcher, properties } of overrides) {
        const by = matcher.id === 'byName' ? name === matcher.options : new RegExp(matcher.options.slice(1, -1)).test(name);
        for (const { id, value } of by ? properties : []) {
          const [key, inner] = id.split('.');
          inner ? (field.config.custom[inner] = value) : (field.config[key] = value);
        }
      }
    }
    field.display = getDisplayProcessor({ field, theme, timeZone: 'utc' });
  }
  return frame;
}

// The frames of a panel, as its component takes them.
export async function framesOf(panel, answers, theme) {
  const pairs = (panel.targets ?? []).map((target) => [target, answers[`${panel.id}${target.refId}`]]);
  let frames = pairs.flatMap(([target, found]) =>
    panel.type === 'table' ? [table(target, found, pairs.length === 1)] : series(target, found)
  );
  if (panel.transformations) {
    frames = await lastValueFrom(transformDataFrame(panel.transformations, frames));
  }
  frames.forEach((frame, n) => frame.fields.forEach((field) => (field.state = { seriesIndex: n })));
  return frames.map((frame) => configure(frame, panel.fieldConfig, frames, theme));
}

// Cumulative buckets as counts, in the order of their bounds.
export function buckets(frames) {
  const bound = (frame) => Number(frame.fields[1].labels.le.replace('+Inf', 'Infinity'));
  let before = 0;
  return frames.sort((one, other) => bound(one) - bound(other)).map((frame) => {
    const [total, field] = [frame.fields[1].values[0], frame.fields[1]];
    const shown = { ...field.display(total - before), title: field.config.displayNameFromDS };
    before = total;
    return shown;
  });
}

// From when to when each annotation of a board lasts, in milliseconds, and its colour.
export const marksOf = (board, marks, step) => board.annotations.list.flatMap(({ name, iconColor }) =>
  marks[name].flatMap(({ values }) => {
    const spans = [];
    for (const [at] of values) {
      const last = spans.at(-1);
      last && at - last.to / 1000 <= step ? (last.to = at * 1000) : spans.push({ from: at * 1000, to: at * 1000, color: iconColor });
    }
    return spans;
  })
);
