// The groups of the navigation, the menus, the drawer of a narrow window, and the typeface.

import { accessible, assert, check, fits, go, tabTo, visitor } from "../support.mjs";

/** Opens the account menu and signs out. */
export async function signOut(page) {
  await page.getByText("Account: ").locator("..").click();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.waitForURL("**/dashboard/login");
}

export async function run(story) {
  const at = (rest) => `/dashboard/${story.workspace}${rest}`;
  const { page } = story;

  await check("the navigation leads on and marks the page", async () => {
    await go(page, at(""));
    const navigation = page.getByRole("navigation", { name: "Main" });
    for (const name of ["Build", "Observe", "Settings"]) await navigation.getByRole("list", { name }).waitFor();
    await navigation.getByRole("link", { name: "Rate limits" }).click();
    await page.getByRole("heading", { name: "Rate limits", level: 1 }).waitFor();
    assert.equal(await navigation.locator("[aria-current]").textContent(), "Rate limits");
  });

  await check("the account menu opens by keyboard, and closes by Escape and by a click elsewhere", async () => {
    await go(page, at(""));
    const account = page.getByRole("link", { name: "Account", exact: true });
    const button = page.locator(".account .menu-button");
    await tabTo(page, (await button.textContent()).trim());
    await page.keyboard.press("Enter");
    await account.waitFor();
    await accessible(page);
    await page.keyboard.press("Escape");
    await account.waitFor({ state: "hidden" });
    assert.ok(await button.evaluate((element) => element === document.activeElement));
    await button.click();
    await page.getByRole("heading", { level: 1 }).click();
    await account.waitFor({ state: "hidden" });
    await button.click();
    await account.click();
    await page.getByRole("heading", { name: "Your account" }).waitFor();
  });

  await check("a narrow window has the navigation in a drawer, which needs no JavaScript", async () => {
    const storageState = await page.context().storageState();
    for (const javaScriptEnabled of [true, false]) {
      const phone = await visitor({ javaScriptEnabled, storageState, viewport: { width: 390, height: 800 } });
      await go(phone, at(""));
      const keys = phone.getByRole("navigation", { name: "Main" }).getByRole("link", { name: "Keys", exact: true });
      assert.equal(await keys.count(), 0);
      await phone.getByRole("button", { name: "Menu" }).click();
      await keys.waitFor();
      if (javaScriptEnabled) {
        await fits(phone);
        await accessible(phone);
        await phone.keyboard.press("Escape");
        await keys.waitFor({ state: "hidden" });
        await phone.getByRole("button", { name: "Menu" }).click();
      }
      await keys.click();
      await phone.getByRole("heading", { name: "Keys", level: 1 }).waitFor();
      await phone.context().close();
    }
  });

  await check("pages use the typeface of the server", async () => {
    await go(page, at(""));
    await page.evaluate(() => document.fonts.ready);
    const loaded = await page.evaluate(() => [...document.fonts].filter((font) => font.status === "loaded").map((font) => font.family));
    assert.deepEqual(loaded, ["Inter Variable"]);
  });

  await check("Ctrl-K and / open the palette, which goes to a page by keyboard alone", async () => {
    await go(page, at("/apis"));
    const palette = page.getByRole("dialog", { name: "Search" });
    await page.keyboard.press("Control+k");
    await palette.getByRole("link", { name: "Create key" }).waitFor();
    await accessible(page);
    await page.keyboard.press("Escape");
    await palette.waitFor({ state: "hidden" });
    await page.keyboard.press("/");
    await palette.waitFor();
    await page.keyboard.type("audit");
    await palette.getByRole("link", { name: "Create key" }).waitFor({ state: "detached" });
    await page.keyboard.press("ArrowDown");
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "Audit log");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Audit log", level: 1 }).waitFor();
    // In a field, "/" is a letter.
    await page.getByLabel("Actor").press("/");
    assert.equal(await page.getByLabel("Actor").inputValue(), "/");
    // Enter follows the first result.
    await page.getByLabel("Actor").press("Control+k");
    await palette.getByRole("searchbox").fill("create api");
    await palette.getByRole("link", { name: "Create key" }).waitFor({ state: "detached" });
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Create API", level: 1 }).waitFor();
  });

  await check("the palette fits a narrow window, and without JavaScript it is a page", async () => {
    const storageState = await page.context().storageState();
    const phone = await visitor({ storageState, viewport: { width: 390, height: 800 } });
    await go(phone, at(""));
    await phone.getByRole("link", { name: "Search" }).click();
    await phone.getByRole("dialog", { name: "Search" }).getByRole("link", { name: "Members" }).waitFor();
    const [found, hint] = [await phone.locator(".palette .found").boundingBox(), await phone.locator(".palette .hint").boundingBox()];
    assert.ok(found.y + found.height <= hint.y + 1, "the hint covers no result");
    await fits(phone);
    await accessible(phone);
    await phone.context().close();
    const plain = await visitor({ javaScriptEnabled: false, storageState });
    await go(plain, at(""));
    await plain.getByRole("link", { name: "Search" }).click();
    await plain.getByRole("searchbox").fill("gateway policy");
    await plain.getByRole("searchbox").press("Enter");
    await plain.getByRole("link", { name: "Create gateway policy" }).click();
    await plain.getByRole("heading", { name: "Create policy", level: 1 }).waitFor();
    await plain.context().close();
  });

  await check("an ID is copied by a click", async () => {
    await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
    await go(page, at(""));
    await page.getByRole("button", { name: `Copy ${story.workspace}` }).click();
    await page.locator("[aria-live]").getByText("Copied").waitFor();
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), story.workspace);
    await accessible(page);
  });

  await check("a time shows its exact value in UTC and in the zone of the reader", async () => {
    const storageState = await page.context().storageState();
    const reader = await visitor({ storageState, timezoneId: "Asia/Tokyo", locale: "en-US" });
    await go(reader, "/dashboard/account");
    const title = await reader.locator("time").first().getAttribute("title");
    assert.match(title, /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\n.*GMT\+9$/);
    await reader.context().close();
  });
}
