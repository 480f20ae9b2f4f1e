"use strict";
// Sorting and filtering of the tables. Everything is on the page without it.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0], rows = [...body.rows];
  const key = (row, column) => {
    const cell = row.cells[column], given = cell.dataset.n;
    return given === undefined ? cell.textContent : given === "" ? -1 : Number(given);
  };
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = head.querySelector("button");
    if (!button) return;
    button.addEventListener("click", () => {
      const was = head.getAttribute("aria-sort");
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      const next = was === null ? "descending" : was === "descending" ? "ascending" : null;
      const order = rows.map((row, at) => [key(row, column), at, row]);
      if (next) {
        const sign = next === "ascending" ? 1 : -1;
        order.sort(([a, i], [b, j]) => sign * (typeof a === "number" ? a - b : a.localeCompare(b)) || i - j);
        head.setAttribute("aria-sort", next);
      }
      table.classList.toggle("sorted", next !== null);
      body.append(...order.map((one) => one[2]));
    });
  });
  const input = document.querySelector(`input[data-filters="${table.id}"]`);
  if (input) {
    const said = input.parentElement.querySelector("output");
    let texts;
    input.addEventListener("input", () => {
      const wanted = input.value.toLowerCase();
      texts ??= rows.map((row) => row.textContent.toLowerCase());
      let shown = 0;
      rows.forEach((row, at) => { row.hidden = !texts[at].includes(wanted); shown += row.hidden ? 0 : 1; });
      table.classList.toggle("sorted", wanted !== "");
      said.textContent = wanted ? `${shown} of ${rows.length}` : "";
    });
  }
}
