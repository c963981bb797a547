// Search and sort the classes; without a search, only the first ones are shown.
(() => {
  "use strict";
  for (const part of document.querySelectorAll(".many")) {
    const [find, order] = [part.querySelector("input"), part.querySelector("select")];
    const body = part.querySelector("tbody");
    const rows = [...body.rows];
    const orders = {
      change: (a, b) => b.dataset.change - a.dataset.change,
      images: (a, b) => b.dataset.images - a.dataset.images,
      name: (a, b) => a.dataset.name.localeCompare(b.dataset.name),
    };
    const show = () => {
      const wanted = find.value.trim().toLowerCase();
      rows.sort(orders[order.value]);
      let left = wanted ? rows.length : Number(part.dataset.shown);
      for (const row of rows) {
        row.hidden = !row.dataset.name.toLowerCase().includes(wanted) || left-- <= 0;
        body.append(row);
      }
    };
    find.addEventListener("input", show);
    order.addEventListener("change", show);
  }
})();
