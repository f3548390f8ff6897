// What other accept lengths, loads and prices would give, on the grid of slider-data.
(function () {
  const data = JSON.parse(document.getElementById("slider-data").textContent);
  const find = (id) => document.getElementById(id);
  if (data.settings.length === 0) {
    find("sliders").closest("section").hidden = true; // nothing here speculates
    return;
  }

  // the step of an axis that holds a value, and how far along it lies, in logarithm
  function place(axis, value) {
    let low = 0, high = axis.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (axis[middle] <= value) low = middle; else high = middle;
    }
    const share = high > low ? Math.log(value / axis[low]) / Math.log(axis[high] / axis[low]) : 0;
    return [low, high, Math.min(1, Math.max(0, share))];
  }

  function tokensPerSecond(grid, accept, clients) {
    const [up, down, y] = place(grid.accept_length, accept);
    const [left, right, x] = place(data.clients, clients);
    const row = (i) => (1 - x) * Math.log(grid.output_tps[i][left]) + x * Math.log(grid.output_tps[i][right]);
    return Math.exp((1 - y) * row(up) + y * row(down));
  }

  // its 90 % interval, as wide as that of this report at the load
  function interval(grid, tps, clients) {
    const [left, right, x] = place(data.clients, clients);
    const [low, high] = grid.interval.map((end) => tps * ((1 - x) * end[left] + x * end[right]));
    return `${amount(tps)} (${amount(low)}\u2013${amount(high)})`;
  }

  // money per million output tokens
  function money(price, tps) { return (1e6 * price * data.gpus) / (3600 * tps); }

  function amount(v) { return v >= 99.95 ? v.toFixed(0) : v >= 9.995 ? v.toFixed(1) : v.toFixed(2); }

  function fill(row, values, words) {
    const cells = find(row).querySelectorAll("td");
    values.forEach((value, k) => {
      cells[k].textContent = words[k];
      cells[k].dataset.value = value; // as computed, before it is rounded
    });
  }

  function show() {
    const grid = data.settings[find("whose").value];
    const [accept, clients, price] = ["accept", "clients", "price"].map((id) => Number(find(id).value));
    const said = { accept: `${accept.toFixed(2)} tokens per round`, clients: String(clients), price: `$ ${price.toFixed(2)}` };
    for (const id in said) {
      find(`${id}-said`).textContent = said[id];
      find(id).setAttribute("aria-valuetext", said[id]);
    }
    const tps = tokensPerSecond(grid, accept, clients), plain = tokensPerSecond(data.plain, 1, clients);
    const gain = tps / plain - 1, percent = 100 * gain;
    find("with").querySelector("th").textContent = grid.name;
    fill("with", [tps, gain, money(price, tps)],
      [interval(grid, tps, clients), `${percent >= 0 ? "+" : ""}${percent.toFixed(1)} %`, amount(money(price, tps))]);
    fill("without", [plain, 0, money(price, plain)], [interval(data.plain, plain, clients), "", amount(money(price, plain))]);
  }

  function range(id, low, high, step, value) {
    Object.assign(find(id), { min: low, max: high, step: step });
    find(id).value = value;
  }

  function choose() {
    const grid = data.settings[find("whose").value], axis = grid.accept_length;
    range("accept", axis[0], axis[axis.length - 1], 0.01, grid.expected);
    find("expected").textContent = `this profile expects ${grid.expected.toFixed(2)} tokens per round`;
    show();
  }

  data.settings.forEach((setting, i) => find("whose").add(new Option(setting.name, i)));
  find("whose").value = data.start.setting;
  range("clients", data.clients[0], data.clients[data.clients.length - 1], 1, data.start.clients);
  range("price", 0.1, 20, 0.05, 2);
  find("whose").addEventListener("change", choose);
  find("sliders").addEventListener("input", show);
  find("sliders").addEventListener("submit", (event) => event.preventDefault());
  choose();
})();
