// Package tpu finds Cloud TPUs.
//
// A [Resolver] turns what a user wrote, or what the environment says, into the addresses
// of a TPU's workers. It follows TensorFlow 2.18's TPUClusterResolver and the client
// below it (tensorflow/python/tpu/client/client.py):
//
//   - Addresses need no API: "grpc://10.0.0.2:8470", or several with commas between. The
//     port is 8470 where none is given.
//   - "local" is a TPU that is attached to this machine.
//   - Any other name is a node of the Cloud TPU API, in a project and a zone. What is not
//     given is asked from the metadata server of Google Compute Engine.
//   - Without a name, the environment is asked in this order:
//     KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS, TPU_NAME, TPU_CONFIG. The last is a JSON object with
//     tpu_node_name, project and zone.
//
// It differs from TensorFlow's where that would go wrong without a word: a list of addresses
// whose first lacks "grpc://" is a list all the same, an IPv6 address may stand in
// brackets, and names, states and ports are checked.
//
// Calls of the API are made with Application Default Credentials. A token goes into
// requests to the API alone, and is in no message and no log.
package tpu
