// Rows of lists: their order, and their menus with a pointer, by keyboard alone, and without JavaScript.

import { WIDTHS, accessible, assert, check, fits, go, inBothThemes, seen, tabTo, v2, visitor } from "../support.mjs";

export async function run(story) {
  const page = story.page;
  const at = (rest) => `/dashboard/${story.workspace}${rest}`;
  const api = (await v2(story.all, "apis.createApi", { name: "row menus" })).data.apiId;
  const { key, keyId } = (await v2(story.all, "keys.createKey", { apiId: api, name: "the only row" })).data;
  const list = at(`/keys?api=${api}`);
  const code = async () => (await v2(story.all, "keys.verifyKey", { key })).data.code;
  const item = (on, role, name) => on.locator(".menu:popover-open").getByRole(role, { name, exact: true });

  await check("a row has a menu beside its button, in order in both themes and at every width", async () => {
    for (const width of WIDTHS) {
      await page.setViewportSize({ width, height: 900 });
      await go(page, list);
      await fits(page);
      const button = page.getByRole("button", { name: "Actions for the only row" });
      await button.click();
      await item(page, "link", "View").waitFor();
      const [box, menu] = [await button.boundingBox(), await page.locator(".menu:popover-open").boundingBox()];
      assert.ok(Math.abs(menu.x + menu.width - (box.x + box.width)) < 2 && Math.abs(menu.y - box.y - box.height) < 2, JSON.stringify([box, menu]));
      assert.ok(menu.x >= 0 && menu.x + menu.width <= width);
      await inBothThemes(page, "row-menu");
    }
    await page.setViewportSize({ width: 1440, height: 900 });
  });

  await check("the menu copies the ID, and says so", async () => {
    await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
    await go(page, list);
    await page.getByRole("button", { name: "Actions for the only row" }).click();
    await item(page, "button", "Copy ID").click();
    await item(page, "button", "Copied").waitFor();
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), keyId);
    await item(page, "button", "Copy ID").waitFor();
  });

  await check("the menu disables the key by keyboard alone, and Escape closes it", async () => {
    await go(page, list);
    await tabTo(page, await page.getByRole("button", { name: "Actions for the only row" }).getAttribute("aria-label"));
    await page.keyboard.press("Enter");
    await item(page, "link", "View").waitFor();
    await page.keyboard.press("Escape");
    await item(page, "link", "View").waitFor({ state: "detached" });
    await page.keyboard.press("Enter");
    await tabTo(page, "Disable");
    await page.keyboard.press("Enter");
    await page.getByText("The key is disabled.").waitFor();
    await seen();
    assert.equal(await code(), "DISABLED");
  });

  await check("without JavaScript the menu enables the key, and leads to the confirmation of its deletion", async () => {
    const plain = await visitor({ javaScriptEnabled: false, storageState: await page.context().storageState() });
    await go(plain, list);
    await plain.getByRole("button", { name: "Actions for the only row" }).click();
    assert.equal(await item(plain, "button", "Copy ID").count(), 0);
    await item(plain, "button", "Enable").click();
    await plain.getByText("Key enabled.").waitFor();
    await seen();
    assert.equal(await code(), "VALID");
    await go(plain, list);
    await plain.getByRole("button", { name: "Actions for the only row" }).click();
    await item(plain, "link", "Delete").click();
    await plain.getByRole("heading", { name: "Delete the only row?" }).waitFor();
    await plain.context().close();
  });

  await check("the head of a column reverses the order by keyboard alone, which a next page keeps", async () => {
    for (let number = 0; number < 26; number += 1) await v2(story.all, "keys.createKey", { apiId: api, name: `row ${number}` });
    await go(page, list);
    const first = () => page.getByRole("rowheader").first().getByRole("link").textContent();
    const created = page.getByRole("columnheader", { name: "Created" });
    assert.deepEqual([await first(), await created.getAttribute("aria-sort")], ["row 25", "descending"]);
    await tabTo(page, "Created");
    await page.keyboard.press("Enter");
    await page.locator("th[aria-sort=ascending]").waitFor();
    assert.equal(await first(), "the only row");
    await accessible(page);
    await page.getByRole("link", { name: "Next page" }).click();
    await page.getByRole("link", { name: "row 25" }).waitFor();
    assert.deepEqual([await first(), await created.getAttribute("aria-sort")], ["row 24", "ascending"]);
    // A search has no such order.
    await page.getByRole("searchbox").fill("row 2");
    await page.locator("th[aria-sort]").waitFor({ state: "detached" });
    await accessible(page);
  });

  await check("a long name does not break the words and the times of the other columns", async () => {
    const long = (await v2(story.all, "apis.createApi", { name: "an API with a long name, ".repeat(8) })).data.apiId;
    await v2(story.all, "keys.createKey", { apiId: long, name: "W".repeat(255), externalId: "customer_of_row_1" });
    await page.setViewportSize({ width: 1440, height: 900 });
    await go(page, at(`/keys?api=${long}`));
    await fits(page);
    for (const cell of [page.getByText("customer_of_row_1"), page.locator("tbody time").first()]) {
      const lines = await cell.evaluate((element) => {
        const range = document.createRange();
        range.selectNodeContents(element);
        return range.getClientRects().length;
      });
      assert.equal(lines, 1);
    }
  });

  await check("the menu of a root key leads to its rotation and its revocation", async () => {
    for (const [name, heading] of [["Rotate", /^Rotate/], ["Revoke", /^Revoke/]]) {
      await go(page, at("/root-keys?q=for+everything"));
      await page.getByRole("button", { name: "Actions for for everything" }).click();
      await accessible(page);
      await item(page, "link", name).click();
      await page.getByRole("heading", { name: heading }).first().waitFor();
    }
  });

  await check("the menu of every list leads to what can be done with a row", async () => {
    await v2(story.all, "identities.createIdentity", { externalId: "row.menu" });
    await v2(story.all, "permissions.createRole", { name: "row.menu" });
    await v2(story.all, "permissions.createPermission", { name: "row menu", slug: "row.menu" });
    await v2(story.all, "ratelimit.limit", { namespace: "row.menu", identifier: "a", limit: 1, duration: 60_000 });
    await v2(story.all, "gateways.createPolicy", { name: "row-menu", apiIds: [api] });
    for (const [path, name, entries] of [
      ["/apis?q=row+menus", "row menus", ["Settings", "Delete"]],
      ["/identities?q=row.menu", "row.menu", ["Edit", "Delete"]],
      ["/roles?q=row.menu", "row.menu", ["Settings", "Delete"]],
      ["/permissions?q=row.menu", "row.menu", ["Delete"]],
      ["/ratelimits?q=row.menu", "row.menu", ["Simulator", "Create override", "Delete"]],
      ["/gateways?q=row-menu", "row-menu", ["Try a request", "Settings", "Rotate secret", "Delete"]],
    ]) {
      const open = async () => {
        await go(page, at(path));
        await page.getByRole("button", { name: `Actions for ${name}`, exact: true }).click();
      };
      await open();
      assert.deepEqual(await page.locator(".menu:popover-open a").allTextContents(), ["View", ...entries]);
      await accessible(page);
      for (const entry of ["View", ...entries]) {
        await open();
        const [reply] = await Promise.all([page.waitForNavigation(), item(page, "link", entry).click()]);
        assert.equal(reply.status(), 200, `${path} ${entry}`);
      }
    }
  });

  await check("a list that is searched leads to the sign-in when the session has ended", async () => {
    const reader = await visitor({ storageState: await page.context().storageState() });
    await go(reader, at("/apis"));
    await reader.context().clearCookies();
    await reader.getByRole("searchbox").fill("row");
    await reader.waitForURL("**/dashboard/login**");
    await reader.context().close();
  });
}
