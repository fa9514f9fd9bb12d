// Filters the table of methods, sorts tables and copies citations. Sends no request to other hosts.
"use strict";

function filterMethods(form, rows) {
  const wanted = Object.fromEntries([...new FormData(form)].filter(([, value]) => value !== ""));
  let shown = 0;
  for (const row of rows) {
    const own = row.dataset;
    row.hidden = !Object.entries(wanted).every(([name, value]) => {
      if (name === "cost") return own.cost !== "" && Number(own.cost) <= Number(value);
      if (name === "text") return own.text.includes(value.trim().toLowerCase());
      return own[name].split(" ").includes(value);
    });
    shown += !row.hidden;
  }
  form.elements.count.value = `${shown} of ${rows.length} methods`;
  return wanted;
}

function enableFilters() {
  const form = document.getElementById("filters");
  if (!form) return;
  const rows = [...document.querySelectorAll("#choose tbody tr")];
  for (const [name, value] of new URLSearchParams(location.search)) {
    if (form.elements[name] && name !== "count") form.elements[name].value = value;
  }
  filterMethods(form, rows);
  form.addEventListener("input", () => {
    const query = new URLSearchParams(filterMethods(form, rows)).toString();
    history.replaceState(null, "", query ? `?${query}` : location.pathname);
  });
  form.addEventListener("submit", (event) => event.preventDefault());
}

function sortTable(table, column, head) {
  const falls = head.getAttribute("aria-sort") === "ascending";
  for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", falls ? "descending" : "ascending");
  const key = (row) => row.cells[column] ? row.cells[column].textContent.trim() : "";
  const number = (text) => (/^[-+−]?[\d.,]+/.test(text) ? parseFloat(text.replace(/,/g, "").replace("−", "-")) : NaN);
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => [key(row), row]);
  rows.sort(([a], [b]) => {
    const [x, y] = [number(a), number(b)];
    if (isNaN(x) !== isNaN(y)) return isNaN(x) - isNaN(y); // cells without a number are last
    const order = isNaN(x) ? a.localeCompare(b) : x - y;
    return falls ? -order : order;
  });
  for (const [, row] of rows) body.append(row);
}

function enableSorting() {
  for (const table of document.querySelectorAll("article table")) {
    if (!table.tHead || !table.tBodies.length) continue;
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const sort = () => sortTable(table, column, head);
      head.tabIndex = 0;
      head.addEventListener("click", sort);
      head.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault(); // the space bar would scroll the page
        sort();
      });
    });
  }
}

function enableCopying() {
  for (const block of document.querySelectorAll(".highlight-bibtex")) {
    const button = document.createElement("button");
    button.className = "copy";
    button.type = "button";
    button.textContent = "copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(block.querySelector("pre").textContent);
      button.textContent = "copied";
    });
    block.prepend(button);
  }
}

document.addEventListener("DOMContentLoaded", () => {
  enableFilters();
  enableSorting();
  enableCopying();
});
