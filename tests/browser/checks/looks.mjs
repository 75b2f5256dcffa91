// Every page, in both themes and three widths: seen by axe, within its window, and kept as a picture to look at.

import { mkdirSync } from "node:fs";
import { SHOTS, accessible, assert, check, complaints, fits, go, visitor } from "../support.mjs";

const WIDTHS = [375, 768, 1440];

export async function run(story) {
  mkdirSync(SHOTS, { recursive: true });
  const at = (rest) => `/dashboard/${story.workspace}${rest}`;
  const key = await story.page.evaluate(async (path) => {
    const page = new DOMParser().parseFromString(await (await fetch(path)).text(), "text/html");
    return page.querySelector("tbody a").getAttribute("href");
  }, at("/root-keys"));
  const pages = {
    "sign-in": ["/dashboard/login", true],
    "no-link": ["/dashboard/join/none", true],
    overview: [at("")],
    "root-keys": [at("/root-keys?show=all")],
    "root-key": [key],
    "root-key-new": [at(`/root-keys/new?template=keys&find-api=m&on-api=${story.api}&permission=api.${story.api}.verify_key`)],
    "root-key-rotate": [`${key}/rotate`],
    "root-key-revoke": [`${key}/revoke`],
    members: [at("/members")],
    account: ["/dashboard/account"],
    "not-there": [at("/nothing/here")],
  };
  for (const colorScheme of ["light", "dark"]) {
    const options = { colorScheme, reducedMotion: "reduce" };
    const signedIn = await visitor({ ...options, storageState: await story.page.context().storageState() });
    const stranger = await visitor(options);
    for (const [name, [path, isStrange]] of Object.entries(pages)) {
      await check(`${name} is in order in the ${colorScheme} theme`, async () => {
        const page = isStrange ? stranger : signedIn;
        page.expected = name === "not-there" ? [404] : [];
        for (const width of WIDTHS) {
          await page.setViewportSize({ width, height: 900 });
          await go(page, path);
          await fits(page);
          await accessible(page);
          // As high as the page, so that what sticks to the window's edge covers nothing of the picture.
          const height = await page.evaluate(() => document.documentElement.scrollHeight);
          await page.setViewportSize({ width, height: Math.max(900, height) });
          await page.screenshot({ path: `${SHOTS}/${name}-${width}-${colorScheme}.png`, fullPage: true });
        }
      });
    }
    await signedIn.context().close();
    await stranger.context().close();
  }

  await check("no page had an error in its console or went against its policy", () => {
    assert.deepEqual(complaints, []);
  });
}
