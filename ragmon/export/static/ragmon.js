// Fetches the page again every few seconds and replaces what it shows; the place that is being read stays where it is.
"use strict";

const seconds = Number(document.body.dataset.refresh);

async function refresh() {
  if (document.hidden || window.getSelection().type === "Range") {
    return;
  }
  const response = await fetch(window.location.href, { cache: "no-store" });
  if (!response.ok) {
    throw new Error(`the monitor answered ${response.status}`);
  }
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
  const focused = document.activeElement?.getAttribute("href");
  for (const open of document.querySelectorAll("details[open]")) {
    fresh.getElementById(open.id)?.setAttribute("open", "");
  }
  for (const part of ["header", "main", "footer"]) {
    document.querySelector(part).innerHTML = fresh.querySelector(part).innerHTML;
  }
  document.title = fresh.title;
  document.dispatchEvent(new Event("refreshed"));
  document.body.classList.remove("stale");
  if (focused) {
    document.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }
}

if (seconds) {
  window.setInterval(() => refresh().catch(() => document.body.classList.add("stale")), seconds * 1000);
}
