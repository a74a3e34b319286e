// @ts-check
// The page: a room for each session, one of them on the screen, and the panels around it.

import { Server } from "./client.js";
import { byId, h, icon } from "./dom.js";
import { EventLog } from "./event-log.js";
import { markdownOf } from "./export.js";
import { Health, isWell, troubleOf } from "./health.js";
import { identity } from "./identity.js";
import { newId } from "./ids.js";
import { keptTheme, paint, setTheme, THEMES } from "./look.js";
import { PageTools } from "./page-tools.js";
import { Room } from "./room.js";
import { Sessions, titleOf } from "./sessions.js";
import { Tabs } from "./tabs.js";
import { Composer } from "./view-composer.js";
import { Inspector } from "./view-inspector.js";
import { SessionList } from "./view-sessions.js";
import { SignIn } from "./view-sign-in.js";
import { emptyState, Transcript } from "./view-transcript.js";
import { announcementOf, lostConnection } from "./words.js";

class Playground {
  rooms = new Map();
  decisions = new Map();
  /** @type {any} */
  capabilities = null;
  /** @type {SignIn | undefined} */
  signIn;
  /** @type {((value?: unknown) => void) | undefined} */
  signedIn;
  commands = []; // one shell command for each protocol that is served

  constructor() {
    this.server = new Server(identity, () => this.#signIn());
    this.sessions = new Sessions(localStorage);
    this.log = new EventLog();
    this.tools = new PageTools(paint);
    this.tabs = new Tabs((message) => this.#onMessage(message));
    this.health = new Health(this.server, (health) => this.#showHealth(health));
    this.list = new SessionList(byId("sessions"), this.sessions, {
      create: () => this.#go(this.#newSession()), forget: (id) => this.#forget(id), export: (id, format) => this.#export(id, format),
      offerTools: (isOffered) => { this.tools.isOffered = isOffered; if (!isOffered) paint(null); },
    });
    this.composer = new Composer(byId("composer"), { send: (text, files) => this.#send(text, files), stop: () => this.room.stop(), editLast: () => this.#editLast() }, byId("chat"));
    this.inspector = new Inspector(byId("inspector"), this.log, () => this.#toggleInspector(false));
    this.transcript = new Transcript({ list: byId("transcript"), scroll: byId("scroll"), jump: byId("jump"), progress: byId("progress") }, this.#actions(), (notice) => this.#drawn(notice));
  }

  async start() {
    this.#frame();
    addEventListener("hashchange", () => this.#open());
    addEventListener("storage", () => this.list.update(this.room.id));
    addEventListener("focus", () => this.#refresh().then(() => this.#learnSessions()));
    for (const change of ["online", "offline"]) addEventListener(change, () => this.health.look()); // of the computer's network
    await this.#useCode();
    await this.#identify();
    await this.#open();
    await this.health.look();
    this.composer.focus();
  }

  // the user

  /** `serve --open` signs in by a code in the address. It leaves the address before anything else happens. */
  async #useCode() {
    const code = new URLSearchParams(location.hash.slice(1)).get("code");
    if (code === null) return;
    history.replaceState(null, "", location.pathname + location.search);
    const token = await this.server.exchange(code).catch(() => null); // spent or too old: the dialog asks for a key
    if (token !== null) identity.use(token, true);
  }

  /** Asks the server for the current user. Without a valid credential, the page waits for one. */
  async #identify() {
    try {
      identity.principal = await this.server.me();
    } catch (error) {
      if (error.status !== 401) return; // no answer yet: the health check shows it, and each request tries again
      identity.forget();
      await new Promise((resolve) => {
        this.signedIn = resolve;
        this.#signIn();
      });
    }
    this.#showIdentity();
  }

  #signIn() {
    this.signIn ??= new SignIn((credential, isKept) => this.#tryCredential(credential, isKept));
    if (!this.signIn.node.open) this.signIn.show(identity.isSignedIn ? "Your key or token is no longer valid." : "");
  }

  /** The problem with a credential, or null. */
  async #tryCredential(credential, isKept) {
    identity.use(credential, isKept);
    try {
      identity.principal = await this.server.me();
    } catch (error) {
      identity.forget();
      return error.message;
    }
    this.#showIdentity();
    this.signedIn?.();
    if (this.room) await this.#load(this.room);
    await this.health.look();
    return null;
  }

  #showIdentity() {
    const { principal } = identity;
    const who = byId("identity");
    who.hidden = !identity.isSignedIn || principal === null;
    if (principal) who.replaceChildren(h("span", { title: principal.scopes.join(", ") }, `${principal.user} · ${principal.tenant}`), h("button", { type: "button", class: "text-button", onclick: () => this.#signOut() }, "Sign out"));
    this.composer.allow({ send: identity.may("chat"), stop: identity.may("runs:stop") });
    if (this.room) this.list.show(this.room.id);
  }

  /** Removes everything of the user from the screen. */
  #signOut() {
    identity.forget();
    location.reload();
  }

  // the room on the screen

  async #open() {
    const id = new URLSearchParams(location.hash.slice(1)).get("session") || this.sessions.list()[0]?.id || this.#newSession(); // of this browser
    if (this.room?.id === id) return;
    history.replaceState(id === this.unused ? { unused: id } : history.state, "", `#session=${encodeURIComponent(id)}`);
    this.#dropIdle(id);
    const isNew = !this.rooms.has(id);
    if (isNew) this.rooms.set(id, this.#makeRoom(id));
    this.room = this.rooms.get(id);
    this.decisions.clear();
    this.transcript.show(this.room.conversation, () => this.#empty());
    this.list.show(id);
    this.#closeDrawer();
    this.#showRoom();
    if (isNew && id !== this.unused) await this.#load(this.room);
  }

  /** A new id. The server does not know it, so the page does not load it. */
  #newSession() {
    return (this.unused = newId("session"));
  }

  #makeRoom(id) {
    const { server, sessions, log, tabs, tools } = this;
    return new Room(id, { server, sessions, log, tabs, tools, isUnused: () => history.state?.unused === id, onChange: () => this.#showRoom(), trouble: () => this.health.look() });
  }

  async #load(room) {
    try {
      await room.open();
    } catch {
      room.isUnread = true; // the health check shows that the server is down; the room is loaded when it is back
      return;
    }
    room.isUnread = false;
    const first = room.conversation.items.find((item) => item.kind === "user");
    if (first && !this.sessions.get(room.id)?.title) this.sessions.update(room.id, { title: titleOf(first.text), at: this.sessions.all().find((each) => each.id === room.id)?.at ?? Date.now() });
    this.list.show(this.room.id);
    this.#showRoom();
  }

  /** A room with a run in progress stays: without a reader the server would cancel the run. */
  #dropIdle(except) {
    for (const [id, room] of this.rooms) {
      if (id === except || room.isBusy) continue;
      room.leave();
      this.rooms.delete(id);
    }
  }

  #go(id) {
    location.hash = `session=${encodeURIComponent(id)}`;
    this.composer.focus();
  }

  /** Another client may have added to this session, or answered its questions. */
  async #refresh() {
    if (!this.room || this.room.id === this.unused || this.room.isBusy || this.room.conversation.items.some((item) => item.id === "lost")) return;
    const { room } = this;
    const session = await this.server.session(room.id).catch(() => undefined); // no answer
    if (!session || room.isBusy) return session === null && room.missed();
    const shown = [room.conversation.items.filter((item) => item.kind === "user").length, ...room.conversation.questions.map((question) => question.id)];
    const there = [session.messages.filter((message) => message.role === "user").length, ...(session.pending?.questions ?? []).map((question) => question.interrupt_id)];
    if (String(there) !== String(shown) || session.active_runs.length > 0) await room.open();
  }

  #send(text, files) {
    this.room.isKnown = true;
    this.unused = null;
    this.room.send(text, files);
    this.transcript.follow();
    this.list.show(this.room.id);
  }

  #editLast() {
    const last = this.room.conversation.items.findLast((item) => item.kind === "user");
    if (last) this.transcript.edit(last.id);
  }

  #actions() {
    return {
      resend: (id, text) => this.#followed(this.room.resend(id, text)),
      retry: () => this.#followed(this.room.retry()),
      goOn: (runId) => this.#followed(this.room.goOn(runId)),
      answerBefore: (id) => this.#answerBefore(id),
      runClientTools: () => this.room.runClientTools(),
      decide: (decision) => this.#decide(decision),
    };
  }

  async #followed(sent) {
    this.transcript.follow();
    await sent;
  }

  /** The server requires all answers of a run together. */
  #decide(decision) {
    this.decisions.set(decision.id, decision);
    const { questions } = this.room.conversation;
    if (!questions.every((question) => this.decisions.has(question.id))) return;
    const decisions = questions.map((question) => this.decisions.get(question.id));
    this.decisions.clear();
    this.room.decide(decisions);
    this.transcript.follow();
  }

  #answerBefore(id) {
    const { items } = this.room.conversation;
    const end = items.findIndex((item) => item.id === id);
    const start = items.slice(0, end).findLastIndex((item) => item.kind === "user");
    return items.slice(start + 1, end).filter((item) => item.kind === "text").map((item) => item.text).join("\n\n");
  }

  async #forget(id) {
    try {
      await this.server.forget(id);
    } catch (error) {
      this.room.conversation.notice("forget", "error", `The session was not deleted: ${error.message}`);
      return;
    }
    this.tabs.post({ kind: "forgotten", session: id });
    this.#leave(id);
  }

  #leave(id) {
    this.sessions.remove(id);
    this.rooms.get(id)?.leave();
    this.rooms.delete(id);
    if (this.room.id === id) this.#go(this.sessions.list()[0]?.id ?? this.#newSession());
    else this.list.show(this.room.id);
  }

  async #export(id, format) {
    const found = await this.server.session(id).catch(() => null);
    const session = found ?? { session_id: id, messages: [], note: "The server does not know this session." };
    const title = this.sessions.get(id)?.title ?? "";
    const [text, type, suffix] = format === "JSON" ? [JSON.stringify({ title, ...session }, null, 2), "application/json", "json"] : [markdownOf(title, session), "text/markdown", "md"];
    const url = URL.createObjectURL(new Blob([text], { type }));
    h("a", { href: url, download: `${id}.${suffix}` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }

  #onMessage({ kind, session, ...rest }) {
    const room = this.rooms.get(session);
    if (!room) return;
    if (kind === "started") room.started(rest);
    if (kind === "rewound" && !room.isBusy) room.open();
    if (kind === "forgotten") this.#leave(session);
  }

  // the panels around it

  #showRoom() {
    if (!this.room) return;
    this.composer.isBusy = this.room.conversation.run !== null;
    this.#banner();
  }

  #drawn({ changed }) {
    const { conversation } = this.room;
    if (changed) this.inspector.state.update(conversation);
    this.composer.isBusy = conversation.run !== null;
    this.#announce(conversation);
  }

  #announce(conversation) {
    const text = announcementOf(conversation);
    if (text === null || text === this.announced) return;
    this.announced = text;
    byId("announcer").textContent = text;
  }

  #banner() {
    const { room } = this;
    const isAccepted = room.conversation.run?.started !== null || room.conversation.run?.isCut;
    const lost = room.connection === "lost" ? lostConnection({ isAccepted, isServerGone: this.health.last === null, refusal: room.refusal }) : null;
    const forgotten = room.isKnown ? null : { tone: "warning", text: "The server does not know this session.", detail: "The server was restarted, or the session has expired. Your next message starts it again." };
    const notice = lost ?? (this.hasLooked ? troubleOf(this.health.last) : null) ?? forgotten;
    const banner = byId("banner");
    banner.className = `banner ${notice?.tone ?? ""}`;
    banner.hidden = notice === null;
    banner.replaceChildren(...(notice ? [h("strong", {}, notice.text), notice.detail] : []));
  }

  async #showHealth(health) {
    const wasWell = this.isWell;
    this.hasLooked = true;
    this.isWell = isWell(health);
    const dot = byId("health");
    dot.className = `health ${this.isWell ? "well" : "unwell"}`;
    dot.textContent = health === null ? "offline" : this.isWell ? health.model ?? "ready" : health.state ?? "not ready";
    if (health?.agent_name) this.#name(health.agent_name);
    this.#banner();
    if (this.isWell && !wasWell) await this.#arrive();
  }

  /** The server responds, for the first time or again. */
  async #arrive() {
    if (!identity.may("chat")) return;
    this.capabilities = await this.server.capabilities().catch(() => this.capabilities);
    this.commands = await this.server.commands().catch(() => this.commands);
    await this.#learnSessions();
    if (this.capabilities?.identity?.name) this.#name(this.capabilities.identity.name);
    const { conversation } = this.room;
    if (this.room.isUnread) await this.#load(this.room);
    else await this.#refresh();
    if (conversation.items.length === 0) this.transcript.show(conversation, () => this.#empty());
  }

  /** The server's list also has sessions that other browsers and the terminal started. */
  async #learnSessions() {
    if (!identity.may("sessions:read")) return;
    const found = await this.server.sessions().catch(() => null); // an older server, or no answer: the browser's own list is shown
    if (found === null) return;
    this.sessions.learn(found);
    this.list.update(this.room.id);
  }

  #name(agent) {
    byId("agent-name").textContent = agent;
    document.title = `${agent} · HoloDeck`;
  }

  #empty() {
    const paintPage = () => {
      this.list.offerTools(true);
      this.#send("Make the background of this page light blue", []);
    };
    return emptyState({ capabilities: this.capabilities, health: this.health.last, commands: this.commands, ask: (text) => this.#send(text, []), paintPage });
  }

  #frame() {
    const buttons = { "open-sessions": "menu", theme: "theme", "open-inspector": "panel" };
    for (const [id, name] of Object.entries(buttons)) byId(id).append(icon(name));
    byId("jump").prepend(icon("down"));
    byId("open-sessions").addEventListener("click", () => this.#toggleDrawer());
    byId("open-inspector").addEventListener("click", () => this.#toggleInspector());
    byId("theme").addEventListener("click", () => setTheme(THEMES[(THEMES.indexOf(keptTheme()) + 1) % THEMES.length]));
    setTheme(keptTheme());
    this.#toggleInspector(localStorage.getItem("holodeck.inspector") === "open" && innerWidth > 1000);
    addEventListener("keydown", (event) => this.#key(event));
  }

  #key(event) {
    if (event.key === "Escape" && !event.defaultPrevented) {
      if (document.body.classList.contains("drawer")) this.#closeDrawer();
      else if (this.room.conversation.run) this.room.stop();
    }
    if (!(event.ctrlKey || event.metaKey)) return;
    if (event.key.toLowerCase() === "i" && !event.shiftKey) {
      event.preventDefault();
      this.#toggleInspector();
    }
  }

  #toggleInspector(isOpen = byId("inspector").hidden) {
    this.inspector.isOpen = isOpen;
    document.body.classList.toggle("inspecting", isOpen);
    byId("open-inspector").setAttribute("aria-expanded", String(isOpen));
    localStorage.setItem("holodeck.inspector", isOpen ? "open" : "closed");
  }

  #toggleDrawer() {
    const isOpen = document.body.classList.toggle("drawer");
    byId("open-sessions").setAttribute("aria-expanded", String(isOpen));
  }

  #closeDrawer() {
    document.body.classList.remove("drawer");
    byId("open-sessions").setAttribute("aria-expanded", "false");
  }
}

new Playground().start();
