package safety

import (
	_ "embed"
	"strings"
	"sync"
)

// What unsafe operations can do.
const (
	readsFiles   = "reads files"
	writesFiles  = "writes files"
	callsPython  = "calls Python"
	endsProcess  = "ends the process"
	usesNetwork  = "talks to other processes"
	runsPrograms = "runs a program that is not a graph"
	changesSetup = "changes the runtime for the whole process"
	isInternal   = "is internal to TensorFlow's runtime"
	isUnknown    = "is not one of the TensorFlow 2.18 operations known to be safe"
)

// unsafeOps are the operations of TensorFlow 2.18 that can do more than work with the tensors and
// variables of a graph, by what they can do.
//
// Operations that create readers, writers and the like are unsafe (a TFRecordReader, a summary
// writer); operations that only use an existing one are not. Operations that communicate with other
// workers are unsafe because an export holds the computation of a single replica: communication is
// up to the strategy.
var unsafeOps = map[string][]string{
	readsFiles: {
		"ReadFile", "MatchingFiles", "ImmutableConst",
		"FixedLengthRecordReader", "FixedLengthRecordReaderV2", "LMDBReader", "TFRecordReader", "TFRecordReaderV2",
		"TextLineReader", "TextLineReaderV2", "WholeFileReader", "WholeFileReaderV2", "RecordInput",
		"Restore", "RestoreSlice", "RestoreV2", "DTensorRestoreV2",
		"GenerateVocabRemapping", "LoadAndRemapMatrix", "InitializeTableFromTextFile", "InitializeTableFromTextFileV2",
		"CSVDataset", "CSVDatasetV2", "ExperimentalCSVDataset", "ExperimentalLMDBDataset", "ExperimentalMatchingFilesDataset",
		"ExperimentalSqlDataset", "FixedLengthRecordDataset", "FixedLengthRecordDatasetV2", "LMDBDataset",
		"ListSnapshotChunksDataset", "LoadDataset", "MatchingFilesDataset", "SnapshotChunkDataset", "SnapshotDatasetReader",
		"SnapshotNestedDatasetReader", "SqlDataset", "TFRecordDataset", "TFRecordDatasetV2", "TextLineDataset",
	},
	writesFiles: {
		"WriteFile", "Save", "SaveSlices", "SaveV2", "MergeV2Checkpoints", "DistributedSave",
		"CreateSummaryDbWriter", "CreateSummaryFileWriter", "CalibrationStatisticsSaver", "DumpTensor", "StoreMinibatchStatisticsInFdo",
		"CacheDataset", "CacheDatasetV2", "DatasetToTFRecord", "ExperimentalDatasetToTFRecord", "SaveDataset", "SaveDatasetV2",
		"SnapshotDataset", "SnapshotDatasetV2",
		"DebugIdentity", "DebugIdentityV2", "DebugIdentityV3", "DebugNanCount", "DebugNumericSummary",
	},
	callsPython: {"EagerPyFunc", "PyFunc", "PyFuncStateless"},
	endsProcess: {"Abort", "WorkerHeartbeat"},
	usesNetwork: {
		"DataServiceDataset", "DataServiceDatasetV2", "DataServiceDatasetV3", "DataServiceDatasetV4", "RegisterDataset", "RegisterDatasetV2",
		"RpcCall", "RpcCheckStatus", "RpcClient", "RpcGetValue", "RpcServer", "RpcServerRegister", "RpcServerStart",
		"RemoteCall", "Send", "Recv", "XlaHostCompute", "XlaRecv", "XlaRecvFromHost", "XlaSend", "XlaSendToHost",
		"CollectiveAllToAllV2", "CollectiveAllToAllV3", "CollectiveAssignGroupV2", "CollectiveBcastRecv", "CollectiveBcastRecvV2",
		"CollectiveBcastSend", "CollectiveBcastSendV2", "CollectiveGather", "CollectiveGatherV2", "CollectiveInitializeCommunicator",
		"CollectiveReduce", "CollectiveReduceScatterV2", "CollectiveReduceV2", "CollectiveReduceV3",
		"NcclAllReduce", "NcclBroadcast", "NcclReduce",
	},
	runsPrograms: {
		"DatasetFromGraph", "MlirPassthroughOp", "TfLiteSubgraphExecute", "XlaCallModule", "XlaCustomCall", "XlaCustomCallV2",
		"TPUCompile", "TPUExecute", "TPUExecuteAndUpdateVariables",
	},
	changesSetup: {
		"FileSystemSetConfiguration",
		"ConfigureAndInitializeGlobalTPU", "ConfigureDistributedTPU", "ConfigureTPUEmbedding", "ConfigureTPUEmbeddingHost",
		"ConfigureTPUEmbeddingMemory", "ConnectTPUEmbeddingHosts", "DTensorSetGlobalTPUArray", "FinalizeTPUEmbedding",
		"FinalizeTPUEmbeddingV2", "ShutdownDistributedTPU", "ShutdownTPUSystem", "UpdateTaskIdAndGlobalCoreArray",
	},
}

// unsafeAttrs are the operations that are unsafe only for some values of an attribute.
var unsafeAttrs = map[string]struct {
	attr, reason string
	harmless     func(value string) bool
}{
	"PrintV2":                      {"output_stream", writesFiles, func(v string) bool { return !strings.HasPrefix(v, "file:") }},
	"FixedUnigramCandidateSampler": {"vocab_file", readsFiles, func(v string) bool { return v == "" }},
	"DecodeProtoV2":                {"descriptor_source", readsFiles, builtinDescriptor},
	"EncodeProto":                  {"descriptor_source", readsFiles, builtinDescriptor},
}

func builtinDescriptor(v string) bool {
	return v == "" || v == "local://" || strings.HasPrefix(v, "bytes://")
}

// safeOpsText lists, one per line, the operations of TensorFlow 2.18 that are neither in unsafeOps
// nor internal. TestEveryOpIsClassified compares both with TensorFlow's registry and tells how to
// update the list for another release.
//
//go:embed safe_ops.txt
var safeOpsText string

// reasons maps every known operation to what is unsafe about it, or "" if it is safe.
var reasons = sync.OnceValue(func() map[string]string {
	out := make(map[string]string)
	for op := range strings.Lines(safeOpsText) {
		out[strings.TrimSuffix(op, "\n")] = ""
	}
	for reason, ops := range unsafeOps {
		for _, op := range ops {
			out[op] = reason
		}
	}
	return out
})

// Attr returns the value of a string attribute, "" if the node does not have it. Known is false if
// the value depends on the caller of the function.
type Attr func(name string) (value string, known bool)

// Reason returns why an operation is unsafe, or "" if it is safe. Unknown operations are unsafe.
func Reason(op string, attr Attr) string {
	if rule, ok := unsafeAttrs[op]; ok {
		if value, known := attr(rule.attr); known && rule.harmless(value) {
			return ""
		}
		return rule.reason
	}
	reason, ok := reasons()[op]
	switch {
	case ok:
		return reason
	case strings.HasPrefix(op, "_"):
		return isInternal
	}
	return isUnknown
}
