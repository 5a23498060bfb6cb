"use strict";
// Everything here is a convenience: without it the page is complete, only unsorted and unfiltered.
(() => {
  const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
  const number = /^[+-]?\d+(\.\d*)?(e[+-]?\d+)?%?$/i;

  function key(cell) {
    const text = (cell.dataset.sort ?? cell.textContent).trim();
    return { text, value: number.test(text) ? parseFloat(text) : null, empty: text === "" || text === "–" };
  }

  // Numbers by size, before texts; cells with nothing in them last, whichever way the rest goes.
  function compare(a, b, direction) {
    if (a.empty || b.empty) return a.empty - b.empty;
    if (a.value !== null && b.value !== null) return direction * (a.value - b.value);
    if (a.value !== null || b.value !== null) return direction * (a.value === null ? 1 : -1);
    return direction * collator.compare(a.text, b.text);
  }

  function sort(table, heading) {
    const headings = [...heading.parentElement.cells];
    const direction = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const other of headings) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", direction === 1 ? "ascending" : "descending");
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => ({ row, key: key(row.cells[heading.cellIndex]) }));
    rows.sort((a, b) => compare(a.key, b.key, direction));
    body.append(...rows.map(({ row }) => row));
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    for (const heading of table.tHead.rows[0].cells) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      button.addEventListener("click", () => sort(table, heading));
      heading.append(button);
    }
  }

  const form = document.getElementById("filters");
  const rows = [...document.getElementById("all-claims").tBodies[0].rows];
  const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));

  function filter() {
    const words = form.elements.text.value.toLowerCase().split(/\s+/);
    const chosen = ["verdict", "figure", "scale"].map((name) => [name, form.elements[name]?.value]);
    let shown = 0;
    for (const row of rows) {
      const fits =
        chosen.every(([name, value]) => !value || row.dataset[name] === value) &&
        words.every((word) => texts.get(row).includes(word));
      row.hidden = !fits;
      shown += fits;
    }
    document.getElementById("shown").textContent = `${shown} of ${rows.length} shown`;
  }

  form.addEventListener("input", filter);
  form.addEventListener("change", filter); // tools that fill in forms send only this one for a choice
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(filter)); // the fields are cleared after this event
  form.hidden = false;
  filter(); // a browser may have kept the fields over a reload

  // Paper has no controls: print everything, and put it back as it was.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const details of closed) details.open = true;
  });
  addEventListener("afterprint", () => {
    for (const details of closed) details.open = false;
  });
})();
