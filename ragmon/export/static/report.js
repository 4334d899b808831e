// Sorts and filters the table of questions; without a script the table is as it was written.
"use strict";

const table = document.getElementById("questions");
const filter = document.getElementById("filter");

function text(row, column) {
  return row.cells[column].textContent.trim();
}

function sortBy(column, button) {
  const rows = [...table.tBodies[0].rows];
  const rising = button.getAttribute("aria-pressed") !== "true";
  rows.sort((one, other) => text(one, column).localeCompare(text(other, column), undefined, { numeric: true }));
  table.tBodies[0].append(...(rising ? rows : rows.reverse()));
  for (const each of table.querySelectorAll("thead button")) {
    each.setAttribute("aria-pressed", String(each === button && rising));
  }
}

function show() {
  const wanted = filter.value.trim().toLowerCase();
  for (const row of table.tBodies[0].rows) {
    row.hidden = !row.textContent.toLowerCase().includes(wanted);
  }
}

if (table) {
  [...table.tHead.rows[0].cells].forEach((cell, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = cell.textContent;
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => sortBy(column, button));
    cell.replaceChildren(button);
  });
  filter.closest("p").hidden = false;
  filter.addEventListener("input", show);
}
