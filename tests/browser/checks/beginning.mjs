// The first person comes by the link of the log, and signs in.

import { SETUP_LINK, accessible, assert, check, go, tabTo, visitor } from "../support.mjs";
import { signOut } from "./navigation.mjs";

export const EMAIL = "ada@example.com";
export const PASSWORD = "correct horse battery staple";

export async function run(story) {
  const page = (story.page = await visitor());

  await check("whoever is not signed in is asked to", async () => {
    await go(page, "/dashboard");
    assert.equal(new URL(page.url()).pathname, "/dashboard/login");
    await accessible(page);
  });

  await check("the link of the log makes the first person, who is signed in", async () => {
    await page.goto(SETUP_LINK);
    await accessible(page);
    await page.getByLabel("E-mail").fill(EMAIL);
    await page.getByLabel("Password", { exact: true }).fill(PASSWORD);
    await page.getByRole("button", { name: "Create account" }).click();
    await page.getByRole("heading", { name: "default", level: 1 }).waitFor();
    story.workspace = new URL(page.url()).pathname.split("/")[2];
    const session = (await page.context().cookies()).find((one) => one.name === "__Host-keyward-session");
    assert.deepEqual(
      [session.httpOnly, session.secure, session.sameSite, session.path],
      [true, true, "Lax", "/"],
    );
    await accessible(page);
  });

  await check("the link works once", async () => {
    const stranger = await visitor();
    await stranger.goto(SETUP_LINK);
    await stranger.getByRole("heading", { name: "Invalid invitation link" }).waitFor();
    await stranger.context().close();
  });

  await check("signing out ends the session", async () => {
    await signOut(page);
    await go(page, `/dashboard/${story.workspace}`);
    assert.equal(new URL(page.url()).pathname, "/dashboard/login");
  });

  await check("a wrong password is told so that a screen reader says it", async () => {
    page.expected = [422];
    await page.getByLabel("E-mail").fill(EMAIL);
    await page.getByLabel("Password", { exact: true }).fill("another password");
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("alert").waitFor();
    assert.equal(await page.getByLabel("E-mail").inputValue(), EMAIL);
    await accessible(page);
    page.expected = [];
  });

  await check("one can sign in with the keyboard alone", async () => {
    await go(page, "/dashboard/login");
    await tabTo(page, "E-mail");
    await page.keyboard.type(EMAIL);
    await tabTo(page, "Password");
    await page.keyboard.type(PASSWORD);
    await tabTo(page, "Sign in");
    await page.keyboard.press("Enter");
    await page.waitForURL(`**/dashboard/${story.workspace}`);
  });
}
