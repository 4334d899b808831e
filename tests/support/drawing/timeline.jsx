// A state timeline. Grafana keeps its own in the server's program, not in the component library, so this one is ours:
// colours and texts come from the panel's mappings through Grafana's display processor.
import React from 'react';
import { dateTimeFormat } from '@grafana/data';
import { measureText } from '@grafana/ui';

const AXIS = 24;
const HOUR = 3_600_000;
const GAP = 8;

// Spans of equal values; a point that is more than a step away begins a new one.
function spans(frame) {
  const [{ values: times, config: { interval } }, { values }] = frame.fields;
  const found = [];
  times.forEach((at, n) => {
    if (values[n] === null) {
      return;
    }
    const last = found.at(-1);
    if (last && last.value === values[n] && at - last.to <= interval) {
      last.to = at;
    } else {
      found.push({ from: at, to: at, value: values[n] });
    }
  });
  return found.map((span) => ({ ...span, to: span.to + interval }));
}

export function StateTimeline({ frames, from, to, width, height, theme }) {
  const row = Math.min((height - AXIS) / frames.length, 40);
  const names = frames.map((frame) => frame.fields[1].config.displayNameFromDS);
  const left = Math.max(...names.map((name) => measureText(name, 12).width)) + 2 * GAP;
  const x = (at) => left + ((Math.min(at, to) - from) / (to - from)) * (width - left - GAP);
  const text = { fontSize: 12, fill: theme.colors.text.primary, fontFamily: theme.typography.fontFamily };
  const hours = Array.from({ length: Math.floor((to - from) / HOUR) }, (_, n) => Math.ceil(from / HOUR + n) * HOUR);
  return (
    <svg width={width} height={height}>
      {hours.map((at) => (
        <g key={at}>
          <line x1={x(at)} x2={x(at)} y1={0} y2={height - AXIS} stroke={theme.colors.border.weak} />
          <text x={x(at)} y={height - 8} textAnchor="middle" style={text}>{dateTimeFormat(at, { timeZone: 'utc', format: 'HH:mm' })}</text>
        </g>
      ))}
      {frames.map((frame, n) => (
        <g key={n}>
          <text x={left - GAP} y={(n + 0.5) * row + 4} textAnchor="end" style={text}>{names[n]}</text>
          {spans(frame).map(({ from: begun, to: ended, value }) => (
            <rect key={begun} x={x(begun)} y={(n + 0.1) * row} width={Math.max(x(ended) - x(begun), 1)} height={0.8 * row} fill={frame.fields[1].display(value).color} fillOpacity={0.8} />
          ))}
        </g>
      ))}
    </svg>
  );
}
