// Links to the report that the server makes of trainings in its history.

import { address, file, token } from "./api.js";
import { make, text } from "./dom.js";

/**
 * Have a link lead to the report. Where there is a token, which an address must not have, the report is fetched with
 * it and saved as a file; `trouble` tells why that has failed.
 */
export function becomeReport(link, trouble) {
  link.addEventListener("click", async (event) => {
    if (!token.get()) return;
    event.preventDefault();
    text(trouble, "The report is being made …");
    try {
      const place = URL.createObjectURL(await file(link.getAttribute("href")));
      make("a", { href: place, download: "report.html" }).click();
      setTimeout(() => URL.revokeObjectURL(place), 60000);
      text(trouble, "");
    } catch (error) {
      text(trouble, error.message || "The state server wants another token.");
    }
  });
}

/** Have the link show these runs, by their ids. */
export function showReport(link, ids) {
  link.hidden = !ids.length;
  if (ids.length) link.href = address("report", { runs: ids.join(",") });
}
