// A data frame: the rows that the kernel sent (the first and the last, never the whole), sorted by a click on a column.
// The value is `engine/sandbox/tables.py`'s: {columns: [{name, dtype, number}], index, rows, shape, head}. A cell is a
// plain JSON value, or {text, cut} for a string that was cut, or {text, sort} for what JSON has no value for.

const digits = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 6, useGrouping: false });
const count = (number) => number.toLocaleString("en-US");

export function table(value) {
  const { columns, rows, shape, head, index } = checked(value);
  const root = document.createElement("div");
  root.className = "out-table";
  const scroll = document.createElement("div");
  scroll.className = "out-table-scroll";
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", `Table, ${count(shape[0])} rows and ${count(shape[1])} columns`);
  const grid = document.createElement("table");
  const body = document.createElement("tbody");
  const state = { column: null, down: false };
  const heads = columns.map((column, at) => headOf(column, () => sort(at)));
  const top = document.createElement("tr");
  top.append(...heads);
  const thead = document.createElement("thead");
  thead.append(top);
  grid.append(thead, body);
  scroll.append(grid);
  root.append(scroll, foot());
  fill();
  return root;

  function fill() {
    const order = rows.map((_, at) => at);
    if (state.column !== null) order.sort((one, other) => compare(rows[one][state.column], rows[other][state.column]) * (state.down ? -1 : 1) || one - other);
    const left = shape[0] - rows.length;
    body.replaceChildren();
    order.forEach((at, place) => {
      if (left > 0 && state.column === null && place === head) body.append(between(left));
      body.append(line(rows[at]));
    });
  }

  function sort(at) {
    if (state.column !== at) Object.assign(state, { column: at, down: false });
    else if (!state.down) state.down = true;
    else Object.assign(state, { column: null, down: false });
    heads.forEach((th, other) => {
      const mine = state.column === other;
      th.setAttribute("aria-sort", mine ? (state.down ? "descending" : "ascending") : "none");
    });
    fill();
  }

  function between(left) {
    const tr = document.createElement("tr");
    tr.className = "between";
    const td = document.createElement("td");
    td.colSpan = columns.length;
    td.textContent = `… ${count(left)} rows between`;
    tr.append(td);
    return tr;
  }

  function line(row) {
    const tr = document.createElement("tr");
    columns.forEach((column, at) => {
      const cell = document.createElement(at < index ? "th" : "td");
      if (at < index) cell.scope = "row";
      const { text, title, kind } = words(row[at], column);
      cell.textContent = text;
      if (title) cell.title = title;
      cell.className = [column.number ? "number" : "", kind].filter(Boolean).join(" ");
      tr.append(cell);
    });
    return tr;
  }

  function foot() {
    const node = document.createElement("div");
    node.className = "out-table-foot";
    let text = `${count(shape[0])} ${shape[0] === 1 ? "row" : "rows"} × ${count(shape[1])} ${shape[1] === 1 ? "column" : "columns"}`;
    if (rows.length < shape[0]) text += `, the first ${head} and the last ${rows.length - head} rows here`;
    if (columns.length - index < shape[1]) text += `, the first ${columns.length - index} columns here`;
    node.textContent = text;
    return node;
  }
}

function checked(value) {
  const fine =
    value && Array.isArray(value.columns) && Array.isArray(value.rows) && Array.isArray(value.shape) && value.shape.every(Number.isFinite) &&
    value.rows.every((row) => Array.isArray(row) && row.length === value.columns.length);
  if (!fine) throw new Error("its data are not a table");
  return { ...value, index: value.index ?? 0, head: value.head ?? value.rows.length };
}

function headOf(column, pressed) {
  const th = document.createElement("th");
  th.scope = "col";
  th.setAttribute("aria-sort", "none");
  if (column.number) th.className = "number";
  const button = document.createElement("button");
  button.type = "button";
  button.title = `Sort by ${column.name || "index"}`;
  const name = document.createElement("span");
  name.className = "name";
  name.textContent = column.name;
  const type = document.createElement("span");
  type.className = "dtype";
  type.textContent = column.dtype ?? "";
  button.append(name, type);
  if (!column.name) button.setAttribute("aria-label", button.title);
  button.addEventListener("click", pressed);
  th.append(button);
  return th;
}

function words(value, column) {
  if (value === null) return { text: "null", kind: "none" };
  if (typeof value === "boolean") return { text: value ? "True" : "False" };
  if (typeof value === "number") {
    const text = Number.isInteger(value) || !column.number ? String(value) : float(value);
    return { text, title: text === String(value) ? "" : String(value) };
  }
  if (typeof value === "string") return { text: value, title: value.length > 40 ? value.slice(0, 2000) : "" };
  if (value.cut) return { text: `${value.text}… (${count(value.cut)} characters)`, kind: "cut", title: "The text is cut here, the data are not." };
  return { text: value.text, kind: value.text === "NaN" || value.text === "NaT" ? "none" : "" };
}

function float(value) {
  const size = Math.abs(value);
  return size && (size >= 1e15 || size < 1e-4) ? String(Number(value.toPrecision(6))) : digits.format(value);
}

// What is missing comes last, numbers before texts.
function compare(one, other) {
  const [a, b] = [rank(one), rank(other)];
  if (a[0] !== b[0]) return a[0] - b[0];
  return a[1] < b[1] ? -1 : a[1] > b[1] ? 1 : 0;
}

function rank(value) {
  if (value === null) return [3, 0];
  if (typeof value === "number" || typeof value === "boolean") return [0, Number(value)];
  if (typeof value === "string") return [1, value];
  if ("sort" in value) return value.sort === null ? [2, value.text] : rank(value.sort);
  return [1, value.text];
}
