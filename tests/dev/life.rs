//! Starts and ends: signals, a kill, a closed terminal, two at once, and logs across restarts.

use std::fs;

use super::{
    harness::{Dev, SOON, client, ended, folder, recif, runs, save, text, until_gone},
    samples::{PROGRAM, RUN_PROGRAM, agent, custom},
};

#[tokio::test]
async fn the_first_signal_waits_for_requests_that_are_served() {
    let folder = folder("first");
    // Its stream goes on until the test has seen that it is waited for.
    let endless = PROGRAM.replace(
        "for number in range(10):",
        "for number in range(6000):\n            if os.path.exists(\"end\"):\n                break",
    );
    assert_ne!(endless, PROGRAM);
    save(folder.join("agent.py"), endless).unwrap();
    save(folder.join("x.yaml"), custom("x", RUN_PROGRAM, "")).unwrap();
    let mut dev = Dev::start(&folder, &["x.yaml"]).await;
    dev.ready().await;
    let request = client().post(dev.chat_url("x")).json(&serde_json::json!({ "message": "hello" }));
    let mut stream = request.header("accept", "text/event-stream").timeout(SOON).send().await.unwrap();
    let first = stream.chunk().await.unwrap().unwrap();
    assert!(first.starts_with(b"data: 0"), "{first:?}");
    let children = dev.children();
    dev.signal("-INT").await;
    assert_eq!(dev.event("ending").await["requests"], 1);
    fs::write(folder.join("end"), "").unwrap();
    let rest = text(&stream.bytes().await.unwrap());
    assert!(rest.ends_with("data: end\n\n"), "{rest}");
    assert_eq!(dev.end().await, 0);
    until_gone(&children).await;
}

#[tokio::test]
async fn the_last_answer_before_the_end_is_kept_as_a_run() {
    let folder = folder("last-run");
    save(folder.join("a.yaml"), agent("one")).unwrap();
    let mut dev = Dev::start(&folder, &["a.yaml"]).await;
    dev.ready().await;
    let request = client().post(dev.chat_url("a")).json(&serde_json::json!({ "message": "hello" }));
    let answer = request.timeout(SOON).send().await.unwrap();
    let run = answer.headers()["x-recif-run"].to_str().unwrap().to_owned();
    answer.text().await.unwrap();
    // Its spans are still with the program and the gateway, which send them once a second.
    dev.signal("-INT").await;
    assert_eq!(dev.end().await, 0);
    let mut next = Dev::start(&folder, &["a.yaml"]).await;
    next.ready().await;
    let (code, shown, errors) = next.recif(&["trace", "--run", &run]).await;
    let spans = ["POST /v1/agents/{namespace}/{name}", "invoke_agent"];
    assert!(code == 0 && spans.iter().all(|span| shown.contains(span)), "{code} {shown} {errors}");
}

#[tokio::test]
async fn a_second_signal_waits_for_nothing() {
    let folder = folder("second");
    let deployment = "apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  selector: {matchLabels: {app: d}}
  template:
    metadata: {labels: {app: d}}
    spec:
      terminationGracePeriodSeconds: 600
      containers:
        - name: c
          image: none
          command: [sh, -c, \"trap '' TERM; echo started; while :; do sleep 1; done\"]
";
    save(folder.join("d.yaml"), deployment).unwrap();
    let mut dev = Dev::start(&folder, &["d.yaml", "--logs", "all"]).await;
    dev.wait(|event| event["event"] == "line" && event["text"] == "started").await;
    let children = dev.children();
    dev.signal("-INT").await;
    // It comes after a second in which the program has its time.
    dev.event("ending").await;
    dev.signal("-INT").await;
    assert_eq!(dev.end().await, 130);
    until_gone(&children).await;
}

#[tokio::test]
async fn what_a_killed_one_left_is_ended_by_the_next_start() {
    let folder = folder("killed");
    save(folder.join("a.yaml"), agent("one")).unwrap();
    let mut dev = Dev::start(&folder, &["a.yaml"]).await;
    dev.ready().await;
    let left = dev.children();
    dev.signal("-KILL").await;
    dev.process.wait().await.unwrap();
    assert!(left.iter().any(|pid| runs(*pid)), "they outlive it");
    let looks = ended(recif(&folder, &["get"])).await;
    assert_ne!(looks.status.code(), Some(0), "no command takes what is left of it: {}", text(&looks.stdout));
    let mut next = Dev::start(&folder, &["a.yaml"]).await;
    until_gone(&left).await;
    next.ready().await;
    assert_eq!(next.chat("a", "hello").await.0, 200);
    next.signal("-TERM").await;
    assert_eq!(next.end().await, 0);
}

#[tokio::test]
async fn a_closed_terminal_ends_it_with_all_its_programs() {
    let folder = folder("terminal");
    save(folder.join("a.yaml"), agent("one")).unwrap();
    let mut dev = Dev::start(&folder, &["a.yaml", "--logs", "all"]).await;
    dev.ready().await;
    let children = dev.children();
    dev.close_terminal();
    assert_eq!(dev.chat("a", "hello").await.0, 200, "unread output ends nothing");
    dev.signal("-HUP").await;
    assert_eq!(dev.end().await, 0);
    until_gone(&children).await;
}

#[tokio::test]
async fn two_run_beside_each_other_and_know_nothing_of_each_other() {
    let folders = [folder("two-one"), folder("two-two")];
    let mut all = Vec::new();
    for (folder, prompt) in folders.iter().zip(["prompt-of-one", "prompt-of-two"]) {
        save(folder.join("a.yaml"), agent(prompt)).unwrap();
        all.push(Dev::start(folder, &["a.yaml"]).await);
    }
    for (dev, [own, other]) in
        all.iter_mut().zip([["prompt-of-one", "prompt-of-two"], ["prompt-of-two", "prompt-of-one"]])
    {
        dev.ready().await;
        let (code, answer) = dev.chat("a", "/prompt").await;
        assert!(code == 200 && answer.contains(own), "{code} {answer}");
        let below = dev.folder.join("below");
        fs::create_dir(&below).unwrap();
        let found = ended(recif(&below, &["get", "agents", "-o", "yaml"])).await;
        let (objects, errors) = (text(&found.stdout), text(&found.stderr));
        assert!(objects.contains(own) && !objects.contains(other), "{objects} {errors}");
    }
    let [first, second] = all.as_mut_slice() else { panic!("two") };
    let (gone, kept) = (first.children(), second.children());
    first.signal("-INT").await;
    assert_eq!(first.end().await, 0);
    until_gone(&gone).await;
    assert_eq!(second.children(), kept);
    assert_eq!(second.chat("a", "hello").await.0, 200);
}

#[tokio::test]
async fn logs_are_there_across_a_restart_and_a_replacement() {
    let folder = folder("logs");
    let script = |name: &str| {
        format!("if [ ! -e {name} ]; then touch {name}; echo first; exit 3; fi; echo {name}; exec sleep 1000")
    };
    let save_run = |name: &str| {
        save(folder.join("run.sh"), script(name)).unwrap();
        save(folder.join("x.yaml"), custom("x", "sh run.sh", &format!("env: [{{name: RUN, value: {name}}}]"))).unwrap();
    };
    save_run("second");
    let mut dev = Dev::start(&folder, &["x.yaml"]).await;
    dev.wait(|event| event["event"] == "line" && event["text"] == "second").await;
    let (code, log, errors) = dev.recif(&["logs", "agent/x"]).await;
    assert_eq!((code, log.as_str()), (0, "second\n"), "{errors}");
    let (code, log, errors) = dev.recif(&["logs", "agent/x", "-p"]).await;
    assert_eq!((code, log.as_str()), (0, "first\n"), "{errors}");
    save_run("third");
    dev.wait(|event| event["event"] == "line" && event["text"] == "third").await;
    let file = fs::read_to_string(folder.join(".recif/logs/default/agent-x-agent.log")).unwrap();
    let lines: Vec<&str> = file.lines().filter_map(|line| line.rsplit(' ').next()).collect();
    assert_eq!(lines, ["first", "second", "first", "third"], "{file}");
}
