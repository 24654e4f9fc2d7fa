// Package tpu finds Cloud TPUs.
//
// A [Resolver] finds the addresses of a TPU's workers from a name or from the environment. It
// follows TPUClusterResolver of TensorFlow 2.18 and the client that it uses
// (tensorflow/python/tpu/client/client.py):
//
//   - Addresses are used as they are: "grpc://10.0.0.2:8470", or several separated by commas. The
//     default port is 8470.
//   - "local" is a TPU attached to this machine.
//   - Any other name is a node of the Cloud TPU API in a project and a zone. The defaults of both
//     come from the metadata server of Google Compute Engine.
//   - Without a name, these environment variables are read in this order:
//     KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS, TPU_NAME, TPU_CONFIG. The last one is a JSON object with
//     tpu_node_name, project and zone.
//
// It differs from TensorFlow where that would silently do the wrong thing: the first address of a
// list does not need "grpc://", an IPv6 address may be in brackets, and names, states and ports are
// checked.
//
// Calls of the API use Application Default Credentials. A token is sent only to the API, and never
// appears in messages or logs.
package tpu
