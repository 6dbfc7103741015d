// Makes elements, and brings those that are there up to date without replacing them: focus and selection stay.

export const byId = (id) => document.getElementById(id);

/** An element; of its attributes, null and undefined are left out. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function text(element, content) {
  if (element.textContent !== content) element.textContent = content;
}

/** Bring the children of `parent` up to date: one for each item, found again by its key, in this order. */
export function list(parent, items, key, create, update) {
  const present = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  items.forEach((item, index) => {
    const name = String(key(item));
    let child = present.get(name);
    if (!child) {
      child = create(item);
      child.dataset.key = name;
    }
    present.delete(name);
    if (parent.children[index] !== child) parent.insertBefore(child, parent.children[index] || null);
    update(child, item);
  });
  for (const child of present.values()) child.remove();
}

/** A table in a box that can be scrolled with the keyboard. */
export function scrollable(label) {
  const table = make("table", { "aria-label": label });
  return { box: make("div", { class: "scroll", role: "region", "aria-label": label, tabindex: "0" }, table), table };
}

/** Fill a table: columns are [title, is a number, text of a row]. */
export function fill(table, columns, rows) {
  const cell = (tag, isNumber, content) => make(tag, { class: isNumber ? "number" : null }, content);
  const head = make("tr", {}, ...columns.map(([title, isNumber]) => cell("th", isNumber, title)));
  for (const th of head.children) th.scope = "col";
  table.replaceChildren(
    make("thead", {}, head),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...columns.map(([, isNumber, show]) => cell("td", isNumber, show(row)))))),
  );
}
