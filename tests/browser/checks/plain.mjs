// Everything works without JavaScript.

import { assert, check, go, v2, visitor } from "../support.mjs";
import { EMAIL, PASSWORD } from "./beginning.mjs";

export async function run(story) {
  const page = await visitor({ javaScriptEnabled: false });
  const at = (rest) => `/dashboard/${story.workspace}${rest}`;

  await check("without JavaScript one signs in", async () => {
    await go(page, "/dashboard/login");
    await page.getByLabel("E-mail").fill(EMAIL);
    await page.getByLabel("Password", { exact: true }).fill(`${PASSWORD}!`);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.waitForURL(`**${at("")}`);
  });

  await check("without JavaScript a root key for one API is searched for, made, and revoked", async () => {
    await go(page, at("/root-keys/new"));
    await page.getByLabel("Name", { exact: true }).fill("without a script");
    await page.getByLabel("Find APIs by name or id").fill("payments");
    await page.getByLabel("Find APIs by name or id").press("Enter");
    await page.getByRole("button", { name: "Add payments & more" }).click();
    assert.equal(await page.getByLabel("Name", { exact: true }).inputValue(), "without a script");
    await page.locator(`[value="api.${story.api}.verify_key"]`).check();
    await page.getByRole("button", { name: "Create root key" }).click();
    const secret = (await page.locator("#secret").textContent()).trim();
    assert.equal(await page.getByRole("button", { name: "Copy" }).count(), 0);
    assert.equal((await v2(secret, "keys.verifyKey", { key: story.key })).data.code, "VALID");
    await page.getByRole("link", { name: "What it may do" }).click();
    await page.getByRole("link", { name: "Revoke" }).click();
    await page.getByRole("button", { name: "Revoke" }).click();
    await page.getByRole("status").waitFor();
  });

  await check("without JavaScript the list is searched", async () => {
    await page.getByRole("searchbox").fill("the maker");
    await page.getByRole("button", { name: "Search" }).click();
    assert.equal(await page.locator("tbody tr").count(), 1);
  });
  await page.context().close();
}
