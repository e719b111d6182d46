// Elements made from words: text is always a text node, so nothing that a log says can be markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== ""));
  return element;
}

export function h(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

export function s(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

export function $(id) {
  return document.getElementById(id);
}

export function count(number) {
  return number.toLocaleString("en-US");
}

export function plural(number, one, many) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

// Replace the children of a list, keeping those whose key and stamp are the same: focus stays.
export function reconcile(parent, items, key, stamp, make) {
  const before = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let at = parent.firstChild;
  for (const item of items) {
    const id = key(item);
    const mark = String(stamp(item));
    let child = before.get(id);
    before.delete(id);
    if (!child || child.dataset.stamp !== mark) {
      const fresh = make(item);
      fresh.dataset.key = id;
      fresh.dataset.stamp = mark;
      if (child) {
        const focused = child.contains(document.activeElement);
        if (child === at) at = fresh;
        child.replaceWith(fresh);
        if (focused) (fresh.matches("a,button") ? fresh : fresh.querySelector("a,button"))?.focus();
      }
      child = fresh;
    }
    if (child === at) at = at.nextSibling;
    else parent.insertBefore(child, at);
  }
  for (const child of before.values()) child.remove();
}

export function copyButton(text, label = "Copy") {
  const button = h("button", { type: "button", class: "copy" }, label);
  button.addEventListener("click", async () => {
    await copy(text);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = label), 1500);
  });
  return button;
}

async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // no clipboard without a secure context: a text field is selected instead
  const field = h("textarea", { class: "unseen" });
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
  return undefined;
}
