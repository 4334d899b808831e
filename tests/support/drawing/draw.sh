#!/bin/sh
# Pictures of the dashboards in ./pictures: what Prometheus answers, drawn with Grafana's component library.
set -eu
cd "$(dirname "$0")"
[ -d node_modules ] || npm install --legacy-peer-deps --ignore-scripts --no-audit --no-fund
PYTHONPATH=../.. "${PYTHON:-../../.venv/bin/python}" collect.py
node_modules/.bin/esbuild draw.jsx --bundle --format=esm --jsx=automatic --log-level=error --outdir=build \
  --define:process.env.NODE_ENV='"production"' --loader:.ttf=dataurl --alias:react-custom-scrollbars-2=./scrollbars.jsx
echo '<!doctype html><meta charset=utf-8><link rel=stylesheet href=draw.css><body style="margin:0"><div id=root></div><script type=module src=draw.js></script>' >build/index.html
mkdir -p pictures
for name in overview retrieval answers traffic health; do
  chromium --headless=new --no-sandbox --hide-scrollbars --allow-file-access-from-files --window-size=1440,"${HEIGHT:-4200}" \
    --virtual-time-budget=8000 --screenshot="pictures/$name.png" "file://$PWD/build/index.html#ragmon-$name" 2>/dev/null
done
