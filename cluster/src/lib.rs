//! A real local Kubernetes control plane for development, tests and benchmarks.
