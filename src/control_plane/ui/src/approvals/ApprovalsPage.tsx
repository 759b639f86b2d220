import "./approvals.css";

import { useQuery } from "@tanstack/react-query";
import { type ReactElement, useId, useState, useSyncExternalStore } from "react";

import { ApiError } from "../api/client.ts";
import type { Summary } from "../api/types.ts";
import { escapeHidden } from "../chat/hidden.ts";
import { WaitingCalls } from "../chat/WaitingCalls.tsx";
import { fleet } from "../fleet/store.ts";
import { Icon } from "../shell/icons.tsx";
import { Card, fullTime, ObjectLink, useNow, useTitle } from "../shell/parts.tsx";
import { useSession } from "../shell/session.ts";
import { Failure, Loading, Notice, sentence, State } from "../shell/states.tsx";
import { agentsThatAsk, decide, isForOthers, keyOf, MAX_REASON, tasksQuery, timeLeft, waits, type WaitingTask } from "./approvals.ts";

/** Calls of tools that wait for a decision, at all agents that the user may see. */
export function ApprovalsPage(): ReactElement {
  useTitle("Approvals");
  const view = useSyncExternalStore(fleet.watch, fleet.view);
  // Agents at which the user decided, so that their answers stay.
  const [kept, setKept] = useState<ReadonlySet<string>>(new Set());
  const agents = agentsThatAsk(view.rows, kept);
  return (
    <div className="page">
      <div className="page-head">
        <h1>Approvals</h1>
        <span className="muted grow">Calls of tools that wait for you</span>
      </div>
      {agents.map((agent) => (
        <AgentTasks key={keyOf(agent)} agent={agent} keep={() => setKept((before) => new Set(before).add(keyOf(agent)))} />
      ))}
      {agents.length === 0 &&
        (view.complete ? (
          <State icon="approvals" title="Nothing waits">
            A call of a tool with spec.approval appears here a few seconds after it came through the gateway. The command recif approvals asks every agent.
          </State>
        ) : view.error ? (
          <Failure error={view.error} retry={() => void fleet.read()} what="the agents" />
        ) : (
          <Loading lines={6} />
        ))}
    </div>
  );
}

function AgentTasks({ agent, keep }: { agent: Summary; keep: () => void }): ReactElement {
  const { data, error, isPending, isFetching, refetch } = useQuery(tasksQuery(agent));
  const now = useNow();
  const user = useSession()?.me.user ?? null;
  const [decided, setDecided] = useState<{ tone: "good" | "warn"; text: string } | null>(null);
  const send = async (task: WaitingTask, approved: boolean | null, reason: string): Promise<void> => {
    setDecided(null);
    keep();
    try {
      const reply = await decide(agent, task, approved, reason);
      const answer = reply && ` ${agent.name} answered: ${escapeHidden(reply)}`;
      const done = approved === null ? "Gone on" : approved ? "Approved" : "Rejected";
      setDecided({ tone: "good", text: `${done}.${answer}` });
    } catch (error) {
      // What came too late is not listed any more.
      if (!isOver(error)) throw error;
      setDecided({ tone: "warn", text: sentence(error.message) });
    } finally {
      await refetch();
    }
  };
  return (
    <Card
      flush
      title={<ObjectLink kind="Agent" namespace={agent.namespace} name={agent.name}>{keyOf(agent)}</ObjectLink>}
      aside={
        <button type="button" className="button quiet icon" aria-label={`Ask ${agent.name} again`} title="Ask again" disabled={isFetching} onClick={() => void refetch()}>
          <Icon name="retry" />
        </button>
      }
    >
      {decided && (
        <Notice tone={decided.tone} icon={decided.tone === "good" ? "check" : "warn"}>
          {decided.text}
        </Notice>
      )}
      {error && <Notice tone="warn">{error instanceof ApiError && error.status === 403 ? `You may not decide here: ${error.message}` : sentence(error.message)}</Notice>}
      {data?.map((task) => (
        <TaskView key={task.task} task={task} user={user} now={now} send={(approved, reason) => send(task, approved, reason)} />
      ))}
      {data?.length === 0 && <p className="waiting-task muted">Nothing waits for you here.{!decided && waits(agent) && " Others decide on the calls that wait."}</p>}
      {isPending && !error && (
        <div className="waiting-task">
          <Loading lines={3} label={`Asking ${agent.name}`} />
        </div>
      )}
    </Card>
  );
}

/** Returns whether a decision came too late: the task is unknown, expired or decided. */
function isOver(error: unknown): error is ApiError {
  return error instanceof ApiError && (error.status === 404 || error.status === 409);
}

interface TaskViewProps {
  task: WaitingTask;
  /** Name of the user who reads the page; null: there is no sign-in. */
  user: string | null;
  now: number;
  /** Sends the decision, or goes on with that of an approver (null); rejects with the reason why it was not taken. */
  send: (approved: boolean | null, reason: string) => Promise<void>;
}

/** Calls of one turn, with what they would do. */
export function TaskView({ task, user, now, send }: TaskViewProps): ReactElement {
  const { calls, expires, decided } = task;
  const [reason, setReason] = useState("");
  const [sending, setSending] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const id = useId();
  const several = calls.length > 1;
  const isOwn = isForOthers(task, user);
  const again = isOwn ? "go on" : "send the same decision again";
  const answer = async (approved: boolean | null): Promise<void> => {
    setSending(true);
    setProblem(null);
    try {
      await send(approved, reason);
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
    }
    setSending(false);
  };
  return (
    <section className="waiting-task" data-task={task.task} aria-label={`Calls of ${calls.map((call) => escapeHidden(call.name)).join(", ")}`}>
      <p className="muted small" title={fullTime(expires)}>
        {[task.user ? `Asked by ${escapeHidden(task.user)}` : "", decided ? `decided, and goes on: ${again} if it does not` : timeLeft(expires, now)].filter(Boolean).join(" · ")}
      </p>
      <WaitingCalls calls={calls} />
      <div className="row wrap">
        {isOwn ? (
          decided ? (
            <button type="button" className="button" disabled={sending} onClick={() => void answer(null)}>
              Go on
            </button>
          ) : (
            <span className="muted small">Another user with the right to approve decides.</span>
          )
        ) : (
          <>
            <button type="button" className="button primary" disabled={sending} onClick={() => void answer(true)}>
              {several ? "Approve all" : "Approve"}
            </button>
            <label className="visually-hidden" htmlFor={`${id}-reason`}>
              Reason of a rejection, for the model
            </label>
            <input
              id={`${id}-reason`}
              className="input reason"
              placeholder="Reason of a rejection"
              maxLength={MAX_REASON}
              value={reason}
              disabled={sending}
              onChange={(event) => setReason(event.target.value)}
            />
            <button type="button" className="button" disabled={sending} onClick={() => void answer(false)}>
              {several ? "Reject all" : "Reject"}
            </button>
          </>
        )}
        {sending && <span role="status">The turn goes on …</span>}
      </div>
      {problem && <Notice tone="bad">{sentence(problem)}</Notice>}
    </section>
  );
}
