//! A peer: the webhook that a team writes with kube's admission types over a typed object, axum and
//! axum-server. It has the defaults and the image check of `peers/controller-runtime`, and logs a line
//! for each review.
//!
//! `my-operator-bench-kube-user ADDRESS FOLDER`, the folder having `tls.crt` and `tls.key`.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use axum::routing::post;
use axum::{Json, Router};
use axum_server::tls_rustls::RustlsConfig;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview};
use oci_spec::distribution::Reference;
use serde::{Deserialize, Serialize};

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize)]
#[kube(
    group = "apps.zhongmingmao.io",
    version = "v1beta1",
    kind = "MyDaemonSet",
    namespaced,
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
struct MyDaemonSetSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    template: Option<PodTemplateSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    update_strategy: Option<UpdateStrategy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_ready_seconds: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision_history_limit: Option<i32>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct UpdateStrategy {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    type_: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rolling_update: Option<RollingUpdate>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct RollingUpdate {
    #[serde(skip_serializing_if = "Option::is_none")]
    max_unavailable: Option<IntOrString>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_surge: Option<IntOrString>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    paused: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    auto_pause: Option<AutoPause>,
    #[serde(skip_serializing_if = "Option::is_none")]
    on_failure: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct AutoPause {
    #[serde(skip_serializing_if = "Option::is_none")]
    enabled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_failures: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    window_seconds: Option<i32>,
}

type Review = AdmissionReview<MyDaemonSet>;

#[tokio::main]
async fn main() -> Result<()> {
    // Into a file: without colours.
    tracing_subscriber::fmt().with_ansi(false).init();
    let mut arguments = std::env::args().skip(1);
    let address: SocketAddr = arguments.next().context("which address?")?.parse()?;
    let folder = arguments.next().context("which folder?")?;
    let folder = Path::new(&folder);
    let tls = RustlsConfig::from_pem_file(folder.join("tls.crt"), folder.join("tls.key")).await?;

    let router = Router::new()
        .route(
            "/mutate-apps-zhongmingmao-io-v1beta1-mydaemonset",
            post(|review: Json<Review>| async move { answer(review, mutate) }),
        )
        .route(
            "/validate-apps-zhongmingmao-io-v1beta1-mydaemonset",
            post(|review: Json<Review>| async move { answer(review, validate) }),
        );
    axum_server::bind_rustls(address, tls)
        .serve(router.into_make_service())
        .await?;
    Ok(())
}

fn answer(
    Json(review): Json<Review>,
    judge: fn(AdmissionResponse, MyDaemonSet) -> Result<AdmissionResponse>,
) -> Json<AdmissionReview<DynamicObject>> {
    let request: AdmissionRequest<MyDaemonSet> = match review.try_into() {
        Ok(request) => request,
        Err(error) => return Json(AdmissionResponse::invalid(error).into_review()),
    };
    let mut response = AdmissionResponse::from(&request);
    // A DELETE has none.
    if let Some(set) = request.object {
        response = judge(response.clone(), set).unwrap_or_else(|error| response.deny(error));
    }
    tracing::info!(
        uid = request.uid,
        operation = ?request.operation,
        name = request.name,
        allowed = response.allowed,
        "reviewed"
    );
    Json(response.into_review())
}

fn mutate(response: AdmissionResponse, mut set: MyDaemonSet) -> Result<AdmissionResponse> {
    let before = serde_json::to_value(&set)?;
    set_defaults(&mut set.spec);
    let after = serde_json::to_value(&set)?;
    Ok(response.with_patch(json_patch::diff(&before, &after))?)
}

fn set_defaults(spec: &mut MyDaemonSetSpec) {
    spec.min_ready_seconds.get_or_insert(0);
    spec.revision_history_limit.get_or_insert(10);
    let strategy = spec.update_strategy.get_or_insert_default();
    let type_ = strategy
        .type_
        .get_or_insert_with(|| "RollingUpdate".to_owned());
    if type_ == "RollingUpdate" {
        let rolling = strategy.rolling_update.get_or_insert_default();
        rolling.max_unavailable.get_or_insert(IntOrString::Int(1));
        rolling.max_surge.get_or_insert(IntOrString::Int(0));
        rolling.partition.get_or_insert(0);
        rolling.paused.get_or_insert(false);
        let auto_pause = rolling.auto_pause.get_or_insert_default();
        auto_pause.enabled.get_or_insert(true);
        auto_pause.window_seconds.get_or_insert(600);
        rolling.on_failure.get_or_insert_with(|| "Pause".to_owned());
    }
}

fn validate(response: AdmissionResponse, set: MyDaemonSet) -> Result<AdmissionResponse> {
    let spec = set.spec;
    let mut faults = Vec::new();
    match spec.image.as_deref() {
        None | Some("") => faults.push("spec.image: Required value: image is required".to_owned()),
        Some(image) => faults.extend(check_image("spec.image", image)),
    }
    let pod = spec.template.and_then(|template| template.spec);
    let containers = pod.map(|pod| pod.containers).unwrap_or_default();
    for (i, container) in containers.iter().enumerate() {
        let image = container.image.as_deref();
        if let Some(image) = image.filter(|image| !image.is_empty()) {
            let field = format!("spec.template.spec.containers[{i}].image");
            faults.extend(check_image(&field, image));
        }
    }
    if !faults.is_empty() {
        bail!("{}", faults.join(", "));
    }
    Ok(response)
}

fn check_image(field: &str, image: &str) -> Option<String> {
    let error = Reference::try_from(image).err()?;
    Some(format!("{field}: Invalid value: {image:?}: {error}"))
}
