"""The boards of grafana/ as pictures: `make board-pictures`.

`collect` has Prometheus answer their queries, `draw.jsx` draws what it answered with Grafana's component library, and
headless Chromium takes the pictures. Beside them stands the digest of each board they show.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from tests.support.dashboard_world import GRAFANA, ROOT, read
from tests.support.drawing.collect import EVERY, answers

HERE = Path(__file__).parent
BUILD = HERE / "build"
IMAGES = ROOT / "docs" / "images" / "boards"
DIGESTS = IMAGES / "SHA256SUMS"
"""The digest of each board of which there is a picture, for `sha256sum --check` in the root of the repository."""
WIDTH, HEADER, CELL = 1456, 46, 38
"""Pixels: of a picture, of its heading, of a row of the grid; the same as in draw.jsx."""
COLOURS = 256
LARGEST = 300_000
"""Bytes of a picture."""
_PAGE = (
    "<!doctype html><meta charset=utf-8><link rel=stylesheet href=draw.css><body style='margin:0;overflow:hidden'>"
    "<div id=root></div><script type=module src=draw.js></script>"
)


def bundle():
    """Put draw.jsx, Grafana's components and data.json into one script."""
    if not (HERE / "node_modules").exists():
        npm = ["npm", "install", "--legacy-peer-deps", "--ignore-scripts", "--no-audit", "--no-fund"]
        subprocess.run(npm, cwd=HERE, check=True)
    esbuild = ["node_modules/.bin/esbuild", "draw.jsx", "--bundle", "--format=esm", "--jsx=automatic", "--outdir=build"]
    esbuild += ["--log-level=error", '--define:process.env.NODE_ENV="production"', "--loader:.ttf=dataurl"]
    esbuild += ["--loader:.woff=dataurl", "--loader:.woff2=dataurl"]
    subprocess.run([*esbuild, "--alias:react-custom-scrollbars-2=./scrollbars.jsx"], cwd=HERE, check=True)
    (BUILD / "index.html").write_text(_PAGE, encoding="utf-8")


def take(uid, board):
    """A picture of a board; what the page's script complains of ends the program."""
    height = HEADER + CELL * max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"]) + 8
    path = BUILD / f"{uid}.png"
    with tempfile.TemporaryDirectory() as profile:
        chromium = ["chromium", "--headless=new", "--no-sandbox", "--hide-scrollbars", "--allow-file-access-from-files"]
        chromium += [f"--user-data-dir={profile}", f"--window-size={WIDTH},{height}", "--virtual-time-budget=8000"]
        chromium += ["--enable-logging=stderr", f"--screenshot={path}", f"file://{BUILD}/index.html#{uid}"]
        done = subprocess.run(chromium, check=True, capture_output=True, text=True)
    complaints = [line for line in done.stderr.splitlines() if ":CONSOLE" in line and "rror" in line]
    if complaints:
        sys.exit("\n".join(complaints))
    return Image.open(path).convert("RGB")


def save(picture, path, largest=LARGEST):
    """Write a picture with a palette, as small as it may be.

    Args:
        picture: The picture.
        path: Its file.
        largest: Bytes that the file may have; more of them end the program.
    """
    picture.quantize(COLOURS, kmeans=2, dither=Image.Dither.NONE).save(path, optimize=True)
    if path.stat().st_size > largest:
        sys.exit(f"{path} has {path.stat().st_size} bytes, more than {largest}")


def digest(path):
    """The SHA-256 of a board's file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def draw():
    """Draw what is in data.json, and write down which boards that were."""
    bundle()
    IMAGES.mkdir(parents=True, exist_ok=True)
    lines = []
    for uid, board in read(GRAFANA).items():
        save(take(uid, board), IMAGES / f"{uid}.png")
        path = GRAFANA / f"{uid}.json"
        lines.append(f"{digest(path)}  {path.relative_to(ROOT)}\n")
    DIGESTS.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    if missing := [name for name in ("prometheus", "promtool", "chromium", "npm") if shutil.which(name) is None]:
        sys.exit(f"not installed: {', '.join(missing)}\nhint: apt-get install prometheus chromium npm")
    if "--again" not in sys.argv:
        with tempfile.TemporaryDirectory() as name:
            (HERE / "data.json").write_text(json.dumps({"step": EVERY, **answers(Path(name))}), encoding="utf-8")
    draw()
