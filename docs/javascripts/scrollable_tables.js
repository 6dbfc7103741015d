// Tables that are wider than the page scroll in a box; this lets the keyboard reach it, under the name of its section.

addEventListener("load", () => {
  const widths = new ResizeObserver((changes) => changes.forEach(({ target }) => name(target)));
  document.querySelectorAll(".md-typeset__scrollwrap").forEach((box) => widths.observe(box));
});

function name(box) {
  if (box.scrollWidth <= box.clientWidth) {
    ["tabindex", "role", "aria-label"].forEach((attribute) => box.removeAttribute(attribute));
    return;
  }
  const before = [...document.querySelectorAll("article :is(h1, h2, h3, h4)")]
    .filter((heading) => heading.compareDocumentPosition(box) & Node.DOCUMENT_POSITION_FOLLOWING);
  const section = before.at(-1)?.firstChild?.textContent.trim() ?? document.title;
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", `Table: ${section}`);
}
