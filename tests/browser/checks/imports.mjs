// Keys that were issued elsewhere are taken in by pasting their hashes.

import { createHash } from "node:crypto";
import { accessible, assert, check, go, seen, v2, visitor } from "../support.mjs";

const hash = (key) => createHash("sha256").update(key).digest("base64");

export async function run(story) {
  const at = (rest) => `/dashboard/${story.workspace}${rest}`;
  const page = story.page;

  await check("an import is made and shows where to send keys", async () => {
    await go(page, at(""));
    await page.getByRole("link", { name: "Imports" }).click();
    await page.getByRole("link", { name: "Create import" }).click();
    await accessible(page);
    await page.getByLabel("Name").fill("the old system");
    await page.getByLabel("SHA-256 of the full key").check();
    await page.getByRole("button", { name: "Create import" }).click();
    await page.getByRole("status").getByText("Import created.").waitFor();
    story.import = new URL(page.url()).pathname;
    const example = await page.locator("#example").textContent();
    assert.ok(example.includes(story.import.split("/").pop()) && example.includes("/v2/keys.migrateKeys"), example);
    await accessible(page);
  });

  await check("a key that is pasted for its hash is refused at its field", async () => {
    page.expected = [422];
    await page.getByLabel("Hashes").fill(`hash,externalId\n${hash("legacy_1")},user_1\nlegacy_2,user_2`);
    await page.getByRole("button", { name: "Import", exact: true }).click();
    await page.getByRole("alert").getByText("keys[1].hash must be SHA-256").waitFor();
    assert.equal(await page.getByLabel("Hashes").getAttribute("aria-invalid"), "true");
    await accessible(page);
    page.expected = [];
  });

  await check("keys are taken in and verify, and what is known is told", async () => {
    await page.getByLabel("API", { exact: true }).selectOption(story.api);
    await page.getByLabel("Hashes").fill(`hash,externalId\n${hash("legacy_1")},user_1\n${hash("legacy_2")},user_2`);
    await page.getByRole("button", { name: "Import", exact: true }).click();
    await page.getByRole("heading", { name: "2 keys imported" }).waitFor();
    await accessible(page);
    await seen();
    assert.equal((await v2(story.all, "keys.verifyKey", { key: "legacy_2" })).data.identity.externalId, "user_2");
    await page.getByRole("link", { name: "Import more" }).click();
    await page.getByLabel("Hashes").fill(JSON.stringify([{ hash: hash("legacy_1") }]));
    await page.getByRole("button", { name: "Import", exact: true }).click();
    await page.getByRole("heading", { name: "1 not imported" }).waitFor();
    await page.getByText("Already imported").waitFor();
  });

  await check("without JavaScript keys are taken in", async () => {
    const plain = await visitor({ javaScriptEnabled: false, storageState: await page.context().storageState() });
    await go(plain, story.import);
    await plain.getByLabel("API", { exact: true }).selectOption(story.api);
    await plain.getByLabel("Hashes").fill(`hash\n${hash("legacy_3")}`);
    await plain.getByRole("button", { name: "Import", exact: true }).click();
    await plain.getByRole("heading", { name: "1 key imported" }).waitFor();
    await plain.context().close();
  });

  await check("imports are listed and found", async () => {
    await go(page, at("/imports?q=OLD"));
    await page.getByRole("row", { name: "the old system" }).getByText("3", { exact: true }).waitFor();
    await accessible(page);
  });
}
