package graphs

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	apb "github.com/wamuir/graft/tensorflow/core/framework/attr_value_go_proto"
	fpb "github.com/wamuir/graft/tensorflow/core/framework/function_go_proto"
	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"
)

// What an operation can do that a step of training has no need of.
const (
	readsFiles   = "reads files"
	writesFiles  = "writes files"
	callsPython  = "calls Python"
	endsProcess  = "ends the process"
	usesNetwork  = "talks to other processes"
	runsPrograms = "runs a program that is no graph"
	changesSetup = "changes the runtime for the whole process"
	isInternal   = "is internal to TensorFlow's runtime"
	isUnknown    = "is none of the operations of TensorFlow 2.18 that are known to stay inside the graph"
)

// unsafeOps are the operations of TensorFlow 2.18 that reach beyond the tensors and
// variables of a graph, by what they can do.
//
// Readers, writers and their like are unsafe where they are made (a
// TFRecordReader, a summary writer); what only takes one that exists is not. The
// operations between workers are here because an export holds one replica's
// computation: to meet other replicas is up to the strategy.
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

// unsafeAttrs are the operations that reach beyond the graph for some values of an
// attribute only.
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

// safeOpsText lists, one to a line, the operations of TensorFlow 2.18 that are
// neither in unsafeOps nor internal. A test holds both against TensorFlow's registry
// and says how to write the list for another release.
//
//go:embed safe_ops.txt
var safeOpsText string

// reasons maps every known operation to what is unsafe about it, "" for nothing.
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

// unsafety returns what an operation may do that a step has no need of, "" for
// nothing. What is not known is unsafe.
func unsafety(op string, attrs map[string]*apb.AttrValue) string {
	if rule, ok := unsafeAttrs[op]; ok {
		if rule.harmless(string(attrs[rule.attr].GetS())) {
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

// OpUse is the use of an operation by a function.
type OpUse struct {
	// Function is the contract's name of the function that leads to the operation,
	// or "serving" for those of the serving SavedModel.
	Function string `json:"function"`
	Op       string `json:"op"`
	// Reason says what the operation may do.
	Reason string `json:"reason"`
}

// UnsafeOpError says that an export uses operations that reach beyond its graph.
type UnsafeOpError struct {
	Path string
	Uses []OpUse // sorted by function and operation, never empty
}

func (e *UnsafeOpError) Error() string {
	use := e.Uses[0]
	ops := make(map[string]bool)
	for _, u := range e.Uses {
		ops[u.Op] = true
	}
	more := ""
	if n := len(ops) - 1; n > 0 {
		more = fmt.Sprintf(" (and %d more operations of the kind)", n)
	}
	return fmt.Sprintf("graph %s is refused: function %s uses %s, which %s%s; if you trust it, allow %s",
		e.Path, use.Function, use.Op, use.Reason, more, strings.Join(sortedKeys(ops), ","))
}

// composedFunctions are the functions that a strategy composes graphs of.
var composedFunctions = []string{"gradients", "update", "evaluate", "predict"}

// Unsafe lists the operations that reach files, processes, the network or Python,
// or might: in the functions that a strategy composes graphs of, and in the
// SavedModel that serves the trained model. There, saving and restoring are left
// out: every SavedModel holds functions for them. The list is sorted by function
// and operation.
func (e *Export) Unsafe() []OpUse {
	var uses []OpUse
	for _, name := range composedFunctions {
		found := make(map[string]string)
		for function := range e.reach(name) {
			e.library.unsafe(e.library.functions[function].GetNodeDef(), found)
		}
		uses = appendUses(uses, name, found)
	}
	if e.serving != nil {
		uses = appendUses(uses, ServingFolder, unsafeServing(e.serving.GetGraphDef().GetNode(), e.serving.GetGraphDef().GetLibrary(),
			e.serving.GetSaverDef().GetSaveTensorName(), e.serving.GetSaverDef().GetRestoreOpName()))
	}
	return uses
}

// RefuseUnsafe returns an *UnsafeOpError if the export uses operations that Unsafe
// lists, other than those allowed by name.
func (e *Export) RefuseUnsafe(allow []string) error {
	uses := slices.DeleteFunc(e.Unsafe(), func(u OpUse) bool { return slices.Contains(allow, u.Op) })
	if len(uses) == 0 {
		return nil
	}
	return &UnsafeOpError{e.Path, uses}
}

func appendUses(uses []OpUse, function string, found map[string]string) []OpUse {
	for _, op := range sortedKeys(found) {
		uses = append(uses, OpUse{function, op, found[op]})
	}
	return uses
}

// unsafe adds the unsafe operations of the nodes to found. Calls of the library's
// functions are no operations.
func (l library) unsafe(nodes []*npb.NodeDef, found map[string]string) {
	for _, node := range nodes {
		if _, ok := l.functions[node.GetOp()]; ok {
			continue
		}
		if reason := unsafety(node.GetOp(), node.GetAttr()); reason != "" {
			found[node.GetOp()] = reason
		}
	}
}

// saverOps are the unsafe operations by which a SavedModel's variables are saved and restored.
var saverOps = []string{"MergeV2Checkpoints", "RestoreV2", "SaveV2"}

// unsafeServing returns the unsafe operations of a SavedModel's graph: of all nodes,
// for a loader runs some that no signature leads to, and of what they call.
func unsafeServing(nodes []*npb.NodeDef, functions *fpb.FunctionDefLibrary, save, restore string) map[string]string {
	l := newLibrary(functions)
	found := make(map[string]string)
	var all, saver []string
	for _, node := range nodes {
		name, _, _ := strings.Cut(save, ":")
		if node.GetName() == name || node.GetName() == restore {
			saver = appendCallees(saver, node)
		} else {
			all = appendCallees(all, node)
		}
	}
	l.unsafe(nodes, found)
	reached := l.reach(all...)
	for function := range reached {
		l.unsafe(l.functions[function].GetNodeDef(), found)
	}
	saving := make(map[string]string)
	for function := range l.reach(saver...) {
		if !reached[function] {
			l.unsafe(l.functions[function].GetNodeDef(), saving)
		}
	}
	for _, op := range saverOps {
		delete(saving, op)
	}
	maps.Copy(found, saving)
	return found
}
