
(() => {
  const key = (row, column) => {
    const entry = row.cells[column];
    if ("number" in entry.dataset) return Number(entry.dataset.number);
    return entry.textContent.trim();
  };
  const isMissing = (value) => value === "" || value === "-";
  const compare = (one, other) =>
    typeof one === "number" && typeof other === "number"
      ? one - other
      : String(one).localeCompare(String(other), "en", { numeric: true });

  const sort = (table, column, direction) => {
    const body = table.tBodies[0];
    const keyed = [...body.rows].map((row) => [key(row, column), row]);
    keyed.sort(([one], [other]) => {
      if (isMissing(one) || isMissing(other)) return isMissing(one) - isMissing(other);
      return direction * compare(one, other);
    });
    body.append(...keyed.map(([, row]) => row));
  };

  document.documentElement.classList.add("scripted");
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      head.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const ascending = head.getAttribute("aria-sort") !== "ascending";
        for (const each of heads) each.setAttribute("aria-sort", "none");
        head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
        sort(table, column, ascending ? 1 : -1);
      });
    });
  }
})();
