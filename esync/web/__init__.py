"""Files that the dashboard and `report.html` share, so that both look alike.

`look.css` has colours and cards, `format.js` writes numbers, `dom.js` makes elements, `icon.svg` is
the icon. May import nothing.
"""
