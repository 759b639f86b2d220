//! Tests that the tokens of each provider are counted.

use crds::usage::UsageTotals;

use super::{Provider, ScriptedReply, anthropic, azure, bedrock, collect, gemini, hello, ollama, openai};

#[tokio::test]
async fn the_tokens_of_each_provider_are_counted_under_its_usual_name() {
    let bytes = |text: &str| text.as_bytes().to_vec();
    for (provider, usual, answer, expected) in [
        ("openai", "openai", bytes(openai::GOOD), [9, 0, 0, 3, 0]),
        ("azureaifoundry", "azure-openai", bytes(azure::GOOD), [9, 0, 0, 3, 0]),
        ("anthropic", "anthropic", bytes(anthropic::GOOD), [25, 5, 0, 15, 0]),
        ("anthropic-vertex", "anthropic-vertex", bytes(anthropic::GOOD), [25, 5, 0, 15, 0]),
        ("googleai", "gemini", bytes(gemini::GOOD), [4, 0, 0, 13, 10]),
        ("gemini-vertex", "gemini-vertex", bytes(gemini::GOOD), [4, 0, 0, 13, 10]),
        ("bedrock", "bedrock", bedrock::good("end_turn"), [14, 4, 1, 3, 0]),
        ("ollama", "ollama", bytes(ollama::GOOD), [26, 0, 0, 298, 0]),
    ] {
        let server = Provider::new([ScriptedReply::ok(answer)]).await;
        let request = hello();
        let account = request.account.clone();
        collect(server.model(provider).respond(request)).await.unwrap();
        let report = server.http.usage.report("", 0);
        let [cell] = &report.cells[..] else { panic!("{provider}: {report:?}") };
        assert_eq!((cell.key.provider.as_str(), cell.key.model.as_str()), (usual, "model-1"));
        let UsageTotals { calls, failed, input, cache_read, cache_write, output, reasoning, estimated, .. } =
            cell.totals;
        assert_eq!((calls, failed, estimated), (1, 0, 0), "{provider}");
        assert_eq!([input, cache_read, cache_write, output, reasoning], expected, "{provider}");
        let told = account.header().unwrap();
        let model = format!(", model=\"{usual}/model-1\"");
        assert!(told.to_str().unwrap().ends_with(&model), "gateways look up the price by it: {told:?}");
    }
}
