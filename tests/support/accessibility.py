"""What axe-core finds on a page in Chromium, and what a person meets who uses the Tab key alone."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

#: Levels A and AA of the Web Content Accessibility Guidelines 2.0 and 2.1, in axe-core's words.
GUIDELINES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
#: Those of axe's rules that look at colours.
COLOURS = ["color-contrast", "link-in-text-block"]
#: What is under the focus: its tag, its name, whether it is outlined, and inside the window; and
#: whether the outline is whole: no box around it cuts it off.
FOCUSED = """() => {
    const one = document.activeElement;
    if (one === document.body) return null;
    // An input that is drawn as its label shows its focus there.
    const drawn = one.tagName === 'INPUT' && one.offsetWidth < 2 ? one.nextElementSibling : one;
    const looks = getComputedStyle(drawn), box = drawn.getBoundingClientRect();
    const name = one.getAttribute('aria-label') || one.textContent.trim() || one.getAttribute('title') || '';
    const space = parseFloat(looks.outlineWidth) + parseFloat(looks.outlineOffset);
    const whole = (around) => {
        const edge = around.getBoundingClientRect();
        return getComputedStyle(around).overflow === 'visible' || (box.left - space >= edge.left - 0.5
            && box.right + space <= edge.right + 0.5 && box.top - space >= edge.top - 0.5
            && box.bottom + space <= edge.bottom + 0.5);
    };
    const around = [];
    for (let next = drawn.parentElement; next !== document.body; next = next.parentElement) around.push(next);
    return {
        whole: around.every(whole), tag: one.tagName.toLowerCase(), name: name.replace(/\\s+/g, ' ').slice(0, 40),
        outlined: looks.outlineStyle !== 'none' && parseFloat(looks.outlineWidth) >= 1,
        seen: box.width > 0 && box.height > 0 && box.bottom > 0 && box.top < innerHeight
            && box.right > 0 && box.left < innerWidth,
    };
}"""
#: Controls that can be seen, as FOCUSED names them; of several radio buttons, Tab stops at one.
CONTROLS = """() => {
    const all = document.querySelectorAll('a[href], button, input, select, summary, [tabindex="0"]');
    return [...all].filter((one) => !one.disabled && one.tabIndex >= 0
        && (one.type !== 'radio' || one.checked) && one.checkVisibility({visibilityProperty: true}))
        .map((one) => [one.tagName.toLowerCase(), (one.getAttribute('aria-label') || one.textContent.trim()
            || one.getAttribute('title') || '').replace(/\\s+/g, ' ').slice(0, 40)]);
}"""


def violations(page: Any, *tags: str, rules: Sequence[str] = ()) -> list[str]:
    """Return what violates the guidelines on a page: `rule: element, why`, one for each element.

    Args:
        page: Playwright's.
        tags: further tags of axe's rules.
        rules: the only rules that are checked; none: all that have a tag.
    """
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe is not installed: pip install -e .[dev]"
    )
    chosen = {"type": "rule", "values": [*rules]} if rules else {"type": "tag", "values": [*GUIDELINES, *tags]}
    options = {"runOnly": chosen, "resultTypes": ["violations"]}
    findings = axe.Axe().run(page, options=options).response["violations"]
    return [
        f"{finding['id']}: {' '.join(map(str, node['target']))}, {node['failureSummary']}"
        for finding in findings
        for node in finding["nodes"]
    ]


def tab_stops(page: Any, limit: int = 400) -> Iterator[dict[str, Any]]:
    """Press Tab until the focus leaves the page, and yield what it stops at."""
    page.evaluate("document.activeElement.blur()")
    for _ in range(limit):
        page.keyboard.press("Tab")
        stop = page.evaluate(FOCUSED)
        if stop is None:
            return
        yield stop
    pytest.fail(f"the focus does not leave the page within {limit} presses of Tab")


def unreachable(page: Any, stops: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the visible controls of a page at which Tab has not stopped, as (tag, name)."""
    reached = {(stop["tag"], stop["name"]) for stop in stops}
    return [(tag, name) for tag, name in page.evaluate(CONTROLS) if (tag, name) not in reached]


def moving(page: Any) -> list[str]:
    """Return the elements that would move: by a transition, an animation, or smooth scrolling."""
    return page.evaluate("""() => [...document.querySelectorAll('*')].filter((one) => {
        const looks = getComputedStyle(one);
        const lasts = (times) => times.split(',').some((time) => parseFloat(time) > 0.01);
        return lasts(looks.transitionDuration) || looks.scrollBehavior === 'smooth'
            || (looks.animationName !== 'none' && lasts(looks.animationDuration));
    }).map((one) => one.tagName.toLowerCase() + '.' + [...one.classList].join('.'))""")


def boxes_without_keyboard(page: Any) -> list[str]:
    """Return the boxes of a page that may scroll and that the keyboard does not reach."""
    return page.evaluate("""() => [...document.querySelectorAll('body *')].filter((one) => {
        const {overflowX, overflowY} = getComputedStyle(one);
        return one.checkVisibility() && [overflowX, overflowY].some((way) => way === 'auto' || way === 'scroll')
            && one.tabIndex < 0 && !one.querySelector('a[href], button, input, summary, [tabindex="0"]');
    }).map((one) => one.tagName.toLowerCase() + '#' + one.id + '.' + one.className)""")
