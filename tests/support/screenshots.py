"""The pages as pictures: `make screenshots`.

A server in this process has seen the incident of `tests.support.incident`; its clock stands still, so the pages are the
same on every machine. Headless Chromium takes a picture of each one that `SHOTS` names. Beside the pictures stands a
digest of what each was made from: the page, without the folder and the version, and the files that it fetches.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import random
import re
import shutil
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from PIL import Image

import ragmon
from ragmon.core.record import encode
from ragmon.export.pages import CONTENT_TYPES, asset
from ragmon.monitor import engine
from tests.support.command_line import ragmon as command
from tests.support.drawing.pictures import save
from tests.support.incident import BEGIN, BROKE, MINUTES, incident, records

IMAGES = Path(__file__).parents[2] / "docs" / "images" / "pages"
DIGESTS = IMAGES / "SHA256SUMS"
"""What each picture was made from: a digest and the picture's name to a line."""
LARGEST = 150_000
"""Bytes of a picture."""
FOLDER = "/srv/support"
"""What pictures show in the place of the folder of the test."""
LAPTOP, WIDE, PHONE = (1080, 800), (1280, 900), (390, 844)
SCALE = 1.5
"""Pixels of a picture to one of the page: text stays sharp where a picture is shown smaller."""
INCIDENT = "/incidents/support-20251121T0131"
GATE = "/p/support/over_refusal_rate?span=1h"
TRACE, REPORT = "/t/…", "report.html"
"""The page of a request that fails the gate, and the report on the questions since the incident began."""


@dataclass(frozen=True)
class Shot:
    """A picture.

    Attributes:
        name: The picture's, without its ending.
        path: Of the page on the admin port, or `TRACE` or `REPORT`.
        size: Width of the screen, and the height at which the picture ends, in pixels.
        colours: `light` or `dark`.
    """

    name: str
    path: str
    size: tuple[int, int] = LAPTOP
    colours: str = "light"


SHOTS = (
    Shot("overview", "/"),
    Shot("overview-phone", "/", PHONE),
    Shot("pipeline", "/p/support"),
    Shot("gate", GATE),
    Shot("gate-dark", GATE, colours="dark"),
    Shot("gate-phone", GATE, PHONE),
    Shot("incident", INCIDENT, (1080, 1400)),
    Shot("incident-phone", INCIDENT, PHONE),
    Shot("incidents", "/incidents", WIDE),
    Shot("requests", "/requests?gate=support/over_refusal_rate"),
    Shot("gold", "/gold"),
    Shot("monitor", "/monitor"),
    Shot("trace", TRACE),
    Shot("report", REPORT, WIDE),
)


@dataclass(frozen=True)
class Pages:
    """The pages during the incident.

    Attributes:
        admin: The address of the server.
        texts: By path: each page as pictures show it, without what differs from run to run.
    """

    admin: str
    texts: dict[str, str]

    def digest(self, shot):
        """The SHA-256 of what a picture is made from."""
        made_from = hashlib.sha256(f"{shot!r}\n{self.texts[shot.path]}".encode())
        for name in CONTENT_TYPES if shot.path != REPORT else ():
            made_from.update(asset(name))
        return made_from.hexdigest()


@contextmanager
def opened(folder):
    """The pages of a server that has seen the incident.

    Args:
        folder: Where it runs.
    """
    with mock.patch.object(engine, "BUDGET", math.inf), incident(folder) as running:  # all of the past at once
        texts = {path: page(running, path) for path in {shot.path for shot in SHOTS} - {TRACE, REPORT}}
        failing = json.loads(page(running, "/api/records?gate=support/over_refusal_rate"))["records"]
        texts |= {TRACE: page(running, f"/t/{failing[0]['trace_id']}"), REPORT: report(folder)}
        yield Pages(running.admin, {path: masked(text, folder) for path, text in texts.items()})


def page(running, path):
    """What the admin port answers."""
    code, text = running.get(path)
    assert code == 200, text
    return text


def report(folder):
    """The report on the gold questions that were asked since the incident began."""
    rng, traces = random.Random(19), folder / "traces.jsonl"
    asked = [
        record for minute in range(BROKE, MINUTES) for record in records(minute, BEGIN + 60 * minute, rng, ("v1", "v2"))
    ]
    traces.write_bytes(b"".join(encode(record) + b"\n" for record in asked if record.source == "probe"))
    done = command("replay", traces, "--config", folder / "ragmon.toml", "--format", "html")
    assert done.code == 0, done.err
    return done.out


def masked(text, folder):
    """A page without the folder and the version of this run, and without the size of its journal."""
    text = re.sub(r"[\d.]+( of \d+ MiB)", r"3.4\1", text)
    return text.replace(str(folder), FOLDER).replace(f"ragmon {ragmon.__version__}", "ragmon")


def take(browser, pages, shot):
    """A picture of a page; what its scripts complain of ends the program."""
    width, height = shot.size
    context = browser.new_context(
        viewport={"width": width, "height": 600}, color_scheme=shot.colours, device_scale_factor=SCALE
    )
    page, complaints = context.new_page(), []
    page.on("console", lambda message: message.type == "error" and complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    address = f"{pages.admin}/picture" if shot.path in (TRACE, REPORT) else f"{pages.admin}{shot.path}"
    page.route(address, lambda route: route.fulfill(content_type="text/html", body=pages.texts[shot.path]))
    page.goto(address, wait_until="load")
    page.wait_for_function("document.fonts.status === 'loaded'")
    tall = page.evaluate("document.documentElement.scrollHeight")
    clip = {"x": 0, "y": 0, "width": width, "height": min(tall, height)}
    taken = page.screenshot(full_page=True, clip=clip, animations="disabled")
    context.close()
    if complaints:
        sys.exit(f"{shot.name}: " + "\n".join(complaints))
    return Image.open(io.BytesIO(taken)).convert("RGB")


def take_all(chromium):
    """Take every picture, and write down what each was made from."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - whoever compares digests needs no browser

    IMAGES.mkdir(parents=True, exist_ok=True)
    lines = []
    with tempfile.TemporaryDirectory() as name, opened(Path(name)) as pages, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for shot in SHOTS:
            save(take(browser, pages, shot), IMAGES / f"{shot.name}.png", LARGEST)
            lines.append(f"{pages.digest(shot)}  {shot.name}.png\n")
        browser.close()
    DIGESTS.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        sys.exit("not installed: chromium\nhint: apt-get install chromium")
    take_all(program)
