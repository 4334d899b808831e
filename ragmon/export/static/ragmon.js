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
  for (const shown of document.querySelectorAll("details")) {
    fresh.getElementById(shown.id)?.toggleAttribute("open", shown.open);
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

// On a narrow screen a row is a paragraph: each cell carries the heading of its column.
function label() {
  for (const table of document.querySelectorAll(".wide > table")) {
    const names = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent.trim());
    for (const row of table.tBodies[0].rows) {
      [...row.cells].forEach((cell, place) => {
        const text = cell.textContent.trim();
        text && cell.setAttribute("data-label", names[place]);
        cell.classList.toggle("nothing", text === "–");
      });
    }
    table.parentElement.classList.add("labelled");
  }
  for (const chart of document.querySelectorAll(".wide > svg.over-time")) {
    chart.parentElement.scrollLeft = chart.parentElement.scrollWidth; // the newest is at the right
  }
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.hidden = false;
  }
}

// Copies a text; where the browser does not let it, the text is opened and selected.
async function copy(button) {
  const source = document.getElementById(button.dataset.copy);
  try {
    await navigator.clipboard.writeText(source.textContent);
    button.textContent = "copied";
  } catch {
    source.closest("details").open = true;
    window.getSelection().selectAllChildren(source);
  }
}

document.addEventListener("refreshed", label);
document.addEventListener("click", ({ target }) => target.dataset.copy && copy(target));
label();
if (seconds) {
  window.setInterval(() => refresh().catch(() => document.body.classList.add("stale")), seconds * 1000);
}
