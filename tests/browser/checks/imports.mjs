// Keys that were issued elsewhere are imported from files. With JavaScript, no full key leaves the browser.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { accessible, assert, check, go, inOrder, seen, tabTo, v2, visitor } from "../support.mjs";

const hash = (key) => createHash("sha256").update(key).digest("base64");
const keyOf = (at) => `legacy_live_${String(at).padStart(8, "0")}`;

/** A file of 200 keys, of which three rows have errors. */
function fileOf200() {
  const row = (at) => {
    if (at === 7) return `${keyOf(at)},name,soon,user_7`;
    if (at === 8) return ",no key,,user_8";
    if (at === 9) return `${keyOf(1)},twice,,user_9`;
    return `${keyOf(at)},"name, ${at}",2090-01-02,user_${at}`;
  };
  const rows = Array.from({ length: 200 }, (_, at) => row(at));
  return { name: "keys.csv", mimeType: "text/csv", buffer: Buffer.from(`API token,Label,Expires at,External ID\r\n${rows.join("\r\n")}\r\n`) };
}

export async function run(story) {
  const at = (rest) => `/dashboard/${story.workspace}${rest}`;
  const page = story.page;
  const button = (name) => page.getByRole("button", { name, exact: true });
  const undoImport = async () => {
    await page.getByRole("link", { name: "Undo import", exact: true }).click();
    await accessible(page);
    await button("Remove keys").click();
  };

  await check("an import is made and shows where to send keys", async () => {
    await go(page, at(""));
    await page.getByRole("link", { name: "Imports" }).click();
    await page.getByRole("link", { name: "Create import" }).click();
    await accessible(page);
    await page.getByLabel("Name").fill("the old system");
    await page.getByLabel("SHA-256 of the full key").check();
    await button("Create import").click();
    await page.getByRole("status").getByText("Import created.").waitFor();
    story.import = new URL(page.url()).pathname;
    const example = await page.locator("#example").textContent();
    assert.ok(example.includes(story.import.split("/").pop()) && example.includes("/v2/keys.migrateKeys"), example);
    await page.getByText("They are never sent.").waitFor();
    await inOrder(page, "import-empty");
  });

  await check("200 keys with errors in three rows are imported in two clicks, and no full key is sent", async () => {
    const sent = [];
    const note = (request) => request.method() === "POST" && sent.push(request.postDataBuffer()?.toString() ?? "");
    page.on("request", note);
    await page.getByLabel("API", { exact: true }).selectOption(story.api);
    await page.getByLabel("File").setInputFiles(fileOf200());
    assert.equal(await page.getByLabel("API token").inputValue(), "key");
    assert.equal(await page.getByLabel("Label").inputValue(), "name");
    await inOrder(page, "import-file");
    let clicks = 0;
    const click = async (name) => {
      await button(name).click();
      clicks += 1;
    };

    await click("Preview");
    await page.getByText("Your browser hashed the full keys. They were not sent.").waitFor();
    const invalid = page.getByRole("region", { name: "Rows with errors" });
    assert.equal(await invalid.getByRole("listitem").count(), 3);
    for (const [row, fault] of [[9, "expires must be from 1970-01-01 to 2100-01-01, in Unix milliseconds"], [10, "hash is missing"], [11, "Duplicate in this import"]]) {
      await invalid.getByRole("listitem").filter({ hasText: `Row ${row} ` }).getByText(fault).waitFor();
    }
    await inOrder(page, "import-preview");
    await click("Import 197 keys");
    await page.getByRole("heading", { name: "197 keys imported" }).waitFor();
    page.off("request", note);

    assert.equal(clicks, 2);
    assert.equal(sent.length, 2);
    for (const body of sent) assert.ok(body.includes(hash(keyOf(0))) && !body.includes("legacy_live"), body.slice(0, 2000));
    await inOrder(page, "import-summary");
    await seen();
    const verified = await v2(story.all, "keys.verifyKey", { key: keyOf(150) });
    assert.equal(verified.data.code, "VALID");
    assert.equal(verified.data.identity.externalId, "user_150");
    assert.equal(verified.data.name, "name, 150");
  });

  await check("the skipped rows are downloaded as CSV", async () => {
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "Download as CSV" }).click()]);
    assert.equal(download.suggestedFilename(), "skipped-rows.csv");
    const csv = readFileSync(await download.path(), "utf8");
    assert.equal(csv.split("\n").length, 5);
    assert.ok(csv.includes('\n9,name,user_7,"expires must be') && !csv.includes("legacy_live"), csv);
  });

  await check("an import is undone but for keys in use, and imported again", async () => {
    await undoImport();
    await page.getByRole("status").getByText("Change undone").waitFor();
    await accessible(page);
    await seen();
    assert.equal((await v2(story.all, "keys.verifyKey", { key: keyOf(0) })).data.code, "NOT_FOUND");
    await go(page, story.import);
    await page.getByRole("link", { name: "View history" }).click();
    await page.getByRole("row", { name: "Keys imported" }).getByText("Undone", { exact: true }).waitFor();
    await go(page, story.import);
    await page.getByLabel("API", { exact: true }).selectOption(story.api);
    await page.getByLabel("File").setInputFiles({ ...fileOf200(), name: "again.csv" });
    await button("Preview").click();
    // Without the undo, there would be none.
    await page.getByRole("button", { name: /^Import 19[67] keys$/ }).click();
    await page.getByRole("heading", { name: /^19[67] keys imported$/ }).waitFor();
    await undoImport();
    await page.getByRole("status").getByText("Change undone").waitFor();
  });

  await check("columns without a known heading are matched, and a column that is not chosen is not sent", async () => {
    await go(page, story.import);
    await page.getByLabel("API", { exact: true }).selectOption(story.api);
    const content = "credential\tnote\twhom\nlegacy_1\tlegacy secret\tuser_1\nlegacy_2\t\tuser_2";
    await page.getByText("Paste the content instead").click();
    await page.getByLabel("Content").fill(content);
    await button("Preview").click();
    await page.getByRole("alert").getByText("choose the column that is Full key or Hash").waitFor();
    await inOrder(page, "import-unmatched");
    await page.getByLabel("credential").selectOption("Full key");
    await page.getByLabel("whom").selectOption("External ID");
    const [request] = await Promise.all([page.waitForRequest((one) => one.method() === "POST"), button("Preview").click()]);
    const body = request.postDataBuffer().toString();
    assert.ok(body.includes(hash("legacy_2")) && body.includes("user_2") && !/legacy[_ ]/.test(body), body);
    await button("Import 2 keys").click();
    await page.getByRole("heading", { name: "2 keys imported" }).waitFor();
    await seen();
    assert.equal((await v2(story.all, "keys.verifyKey", { key: "legacy_2" })).data.identity.externalId, "user_2");
  });

  await check("a key that is pasted for its hash is not sent, and what is known is told", async () => {
    await page.getByRole("link", { name: "Import more" }).click();
    assert.equal(await page.getByLabel("API", { exact: true }).inputValue(), story.api);
    await page.getByText("Paste the content instead").click();
    await page.getByLabel("Content").fill(JSON.stringify([{ hash: hash("legacy_1"), meta: { plan: "pro" } }, { hash: "legacy_9" }]));
    const [request] = await Promise.all([page.waitForRequest((one) => one.method() === "POST"), button("Preview").click()]);
    assert.ok(!request.postDataBuffer().toString().includes("legacy_9"));
    await page.getByText("hash must be SHA-256 as 64 hexadecimal digits").waitFor();
    await page.getByText("Already imported").waitFor();
    assert.equal(await page.getByRole("button", { name: /^Import / }).count(), 0);
    await accessible(page);
  });

  await check("a file that cannot be read is told in the page and not sent", async () => {
    await page.getByRole("link", { name: "Cancel" }).click();
    const sent = [];
    page.on("request", (request) => request.method() === "POST" && sent.push(request.url()));
    await button("Preview").click();
    await page.getByRole("alert").getByText("choose a file, or paste its content").waitFor();
    for (const [text, fault] of [["[{", "the file is not valid JSON"], ["[1]", "entry 1 of the file must be an object"], ['[{"credits": 9007199254740993}]', "a number is too large"]]) {
      await page.getByLabel("File").setInputFiles({ name: "keys.json", mimeType: "application/json", buffer: Buffer.from(text) });
      await page.getByRole("alert").getByText(fault).waitFor();
      await button("Preview").click();
      await page.getByRole("alert").getByText(fault).waitFor();
    }
    await accessible(page);
    assert.deepEqual(sent, []);
  });

  await check("an import works by keyboard alone", async () => {
    await go(page, story.import);
    await page.getByLabel("File").setInputFiles({ name: "keys.csv", mimeType: "text/csv", buffer: Buffer.from("key\nlegacy_4\n") });
    await page.getByLabel("key", { exact: true }).waitFor();
    for (const name of ["API", "Paste the content instead", "key", "Preview"]) await tabTo(page, name);
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Import preview" }).waitFor();
    for (const name of ["Update preview", "Import 1 key"]) await tabTo(page, name);
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "1 key imported" }).waitFor();
  });

  await check("without JavaScript the server hashes the keys of a file", async () => {
    const plain = await visitor({ javaScriptEnabled: false, storageState: await page.context().storageState() });
    await go(plain, story.import);
    await plain.getByText("The server hashes full keys and stores only the hashes.").waitFor();
    await plain.getByLabel("API", { exact: true }).selectOption(story.api);
    await plain.getByLabel("File").setInputFiles({ name: "keys.csv", mimeType: "text/csv", buffer: Buffer.from("credential,name\nlegacy_3,three\n") });
    await plain.getByRole("button", { name: "Preview", exact: true }).click();
    await plain.getByText("choose the column that is Full key or Hash").waitFor();
    await plain.getByLabel("credential").selectOption("Full key");
    await plain.getByRole("button", { name: "Update preview" }).click();
    await plain.getByText("The server hashed the full keys.").waitFor();
    assert.ok(!(await plain.content()).includes("legacy_3"));
    await plain.getByRole("button", { name: "Import 1 key" }).click();
    await plain.getByRole("heading", { name: "1 key imported" }).waitFor();
    await plain.context().close();
    await seen();
    assert.equal((await v2(story.all, "keys.verifyKey", { key: "legacy_3" })).data.name, "three");
  });

  await check("imports are listed and found", async () => {
    await go(page, at("/imports?q=OLD"));
    // Two by the user, one by keyboard, one without JavaScript, and the one that was used before the undo. Another replica
    // than that of the use learns of it within 30 seconds.
    await page.getByRole("row", { name: "the old system" }).getByText(/^[45]$/).waitFor();
    await accessible(page);
  });
}
