// The components of the style guide look as in the pictures of docs/design.md. KEYWARD_UPDATE_PICTURES=1 renews them.

import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import pixelmatch from "pixelmatch";
import { PNG } from "pngjs";
import { WIDTHS, accessible, assert, check, fits, go, keep, visitor } from "../support.mjs";

const PICTURES = new URL("../../../docs/images/design/", import.meta.url);
const PARTS = [
  "colors", "type", "icons", "actions", "figures", "facts", "lists", "forms", "charts", "form-errors", "choices", "filters", "selection",
  "rows", "outcomes", "secrets", "confirmations", "search", "empty-lists", "page-errors",
];
/** The share of pixels that may differ: the monospaced font and the arrows of selects are those of the system. */
const DIFFERENT_MAX = 0.01;

/** Fails if a picture differs from the one of the repository. */
function compare(name, taken) {
  const file = new URL(`${name}.png`, PICTURES);
  if (process.env.KEYWARD_UPDATE_PICTURES) {
    mkdirSync(PICTURES, { recursive: true });
    writeFileSync(file, taken);
    return;
  }
  assert.ok(existsSync(file), `there is no picture ${name}.png: run with KEYWARD_UPDATE_PICTURES=1`);
  const [is, was] = [PNG.sync.read(taken), PNG.sync.read(readFileSync(file))];
  const difference = new PNG({ width: is.width, height: is.height });
  const sameSize = is.width === was.width && is.height === was.height;
  const pixels = sameSize ? pixelmatch(was.data, is.data, difference.data, is.width, is.height, { threshold: 0.2 }) : Infinity;
  if (pixels <= DIFFERENT_MAX * is.width * is.height) return;
  keep(`${name}-is`, taken);
  if (sameSize) keep(`${name}-difference`, PNG.sync.write(difference));
  assert.fail(sameSize ? `${pixels} pixels of ${name} differ` : `${name} is ${is.width} × ${is.height}, not ${was.width} × ${was.height} px`);
}

export async function run() {
  for (const colorScheme of ["light", "dark"]) {
    const page = await visitor({ colorScheme });
    await check(`the style guide is in order in the ${colorScheme} theme`, async () => {
      for (const width of WIDTHS) {
        await page.setViewportSize({ width, height: 900 });
        await go(page, "/dashboard/styleguide");
        await fits(page);
        await accessible(page);
      }
    });
    await check(`the components look as in their pictures in the ${colorScheme} theme`, async () => {
      await page.setViewportSize({ width: 1180, height: 900 });
      await go(page, "/dashboard/styleguide");
      await page.evaluate(() => document.fonts.ready);
      compare(`navigation-${colorScheme}`, await page.locator(".side").screenshot());
      for (const part of PARTS) compare(`${part}-${colorScheme}`, await page.locator(`#${part}`).screenshot());
    });
    await page.context().close();
  }
}
