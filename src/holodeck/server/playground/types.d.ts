// The shapes that the modules hand to each other, for `// @ts-check`. Editors and the tests read them; browsers never do.

/** Who the credential stands for, from GET /me. */
export interface Principal { user: string; tenant: string; scopes: string[] }

/** One item of a conversation, in the order in which it is shown. Which members it has depends on its kind. */
export interface Item {
  kind: "user" | "text" | "reasoning" | "call" | "activity" | "notice" | "turn";
  id: string;
  dropped?: boolean;
  [member: string]: any;
}

/** The run in progress, and its times in milliseconds; `started` is null until the server has accepted it. */
export interface CurrentRun {
  runId: string; at: number; started: number | null; first: number | null; last: number | null;
  deltas: number; model?: string; replayed: boolean;
  isCut?: boolean; // it was cut, and its continuation is asked for
}

/** A call that waits for a person. */
export interface Question { id: string; callId: string; tool?: string; arguments: string; expires?: string | null }

export interface Decision { id: string; approved: boolean; arguments?: object }

export interface Trouble { tone: "info" | "warning" | "error"; text: string; detail: string }

/** A button of a notice. */
export interface NoticeAction { label: string; act: () => unknown }

/** A session in the list; `sending` is a message that the server has not accepted yet. */
export interface SessionEntry { id: string; title: string; at: number; count?: number; sending?: { id: string; runId: string; text: string; files: any[] } }

/** A part of a line of Markdown: text, or an element with children. */
export type InlinePart = string | { kind: string; children?: InlinePart[]; text?: string; [member: string]: any };

/** A MathML element, as data. */
export interface MathsNode { tag: string; attributes: Record<string, string>; children: (MathsNode | string)[]; isBig?: boolean }

/** What a block of Markdown became on the screen; `grow` adds to it and says whether it could. */
export interface ShownBlock { kind: string; start: number; node: HTMLElement; grow?: (block: any) => boolean }

export interface View { node: HTMLElement; item?: Item; update(item: Item): void; edit?: () => void }
