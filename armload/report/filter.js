
(() => {
  for (const bar of document.querySelectorAll("[data-filters]")) {
    const table = document.getElementById(bar.dataset.filters);
    const buttons = [...bar.querySelectorAll("button")];
    for (const button of buttons) {
      button.addEventListener("click", () => {
        for (const each of buttons) each.setAttribute("aria-pressed", String(each === button));
        const wanted = button.dataset.outcome;
        for (const row of table.tBodies[0].rows) {
          row.hidden = wanted !== "" && !row.dataset.outcome.split(" ").includes(wanted);
        }
      });
    }
  }
})();
