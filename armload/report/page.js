
(() => {
  const source = document.getElementById("charts");
  if (!source) return;
  const NARROW = 480;
  const LEAST_PANEL = 100;

  const fitted = (specification, room, over) => {
    const fit = structuredClone(specification);
    if (room < NARROW) fit.config.legend.columns = 1;
    if (fit.facet) {
      fit.columns = Math.min(fit.columns, room < NARROW ? 1 : room < 800 ? 2 : 3);
      fit.spec.width = Math.max(LEAST_PANEL, Math.floor((room - over) / fit.columns));
    } else if (fit.vconcat) {
      for (const track of fit.vconcat) track.width = Math.max(LEAST_PANEL, room - over);
    } else {
      fit.width = "container";
    }
    return fit;
  };

  const draw = (holder, specification) => {
    const still = holder.innerHTML;
    let wanted = 0;

    // Panels and tracks have no width "container": what axes and gaps take is seen in a first
    // drawing.
    const fill = async (room, over, isLast) => {
      const config = { background: "transparent", font: getComputedStyle(document.body).fontFamily };
      const options = { config, actions: false, ast: true, renderer: "svg" };
      await vegaEmbed(holder, fitted(specification, room, over), options);
      const drawn = holder.querySelector("svg").viewBox.baseVal.width;
      const more = Math.ceil(drawn - room);
      if ((specification.facet || specification.vconcat) && !isLast && more !== 0 && room === wanted) {
        await fill(room, over + more, true);
      }
    };

    const again = () => {
      const room = holder.clientWidth;
      if (room === wanted || room === 0) return;
      wanted = room;
      fill(room, 0, false).catch((error) => {
        holder.innerHTML = still;
        console.error(error);
      });
    };

    again();
    window.addEventListener("resize", again);
  };

  for (const [name, specification] of Object.entries(JSON.parse(source.textContent))) {
    draw(document.getElementById(`chart-${name}`), specification);
  }
})();

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
