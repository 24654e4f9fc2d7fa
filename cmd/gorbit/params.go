package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/gorbit-ml/gorbit/internal/app/help"
	"github.com/gorbit-ml/gorbit/train/params"
)

// trainGroups are the groups of the flags of params in gorbit train, in the order of its help.
var trainGroups = []string{params.WhatToTrain, params.OfData, params.HowLong, params.OfOptimizer, params.OfLoop, params.Where, params.CloudTPU}

// paramValue is the value of a flag of a param.
type paramValue struct {
	of   params.Param
	kind any // the param's default
	text string
}

func (v *paramValue) String() string { return v.text }

// Set keeps a value that has the param's type.
func (v *paramValue) Set(text string) error {
	v.text = text
	scratch := params.Defaults()
	return scratch.Set(v.setting())
}

// Param returns the name of the param, for the flag's help.
func (v *paramValue) Param() string { return v.of.Name }

// Type returns the form of the value.
func (v *paramValue) Type() string {
	switch v.kind.(type) {
	case bool:
		return "bool"
	case float64:
		return cmp.Or(v.of.Flag.Form, "X")
	case time.Duration:
		return cmp.Or(v.of.Flag.Form, "DURATION")
	case string:
		return v.of.Flag.Form
	}
	return cmp.Or(v.of.Flag.Form, "N")
}

// setting returns the flag in the form of --set.
func (v *paramValue) setting() string {
	if _, yes := v.kind.(string); yes {
		return v.of.Name + "=" + strconv.Quote(v.text)
	}
	return v.of.Name + "=" + v.text
}

// typedParams returns the flags of params that were typed, such as "--epochs 3", by param.
func typedParams(f *pflag.FlagSet) map[string]string {
	typed := map[string]string{}
	f.Visit(func(flag *pflag.Flag) {
		if v, ok := flag.Value.(*paramValue); ok {
			typed[v.of.Name] = fmt.Sprintf("--%s %s", v.of.Flag.Name, v.text)
		}
	})
	return typed
}

// addParams adds the flags of params that are in some groups. The function that it returns gives those
// that were set, in the form of --set.
func addParams(f *pflag.FlagSet, groups ...string) func() []string {
	defaults := params.Defaults().Flat()
	var values []*paramValue
	for _, group := range groups {
		for _, of := range params.Table() {
			if of.Flag.Name == "" || of.Flag.Group != group {
				continue
			}
			v := &paramValue{of: of, kind: defaults[of.Name]}
			f.Var(v, of.Flag.Name, of.Flag.Help)
			values = append(values, v)
			flag := f.Lookup(of.Flag.Name)
			flag.DefValue = strings.Trim(fmt.Sprint(v.kind), `"`)
			if _, yes := v.kind.(bool); yes {
				flag.NoOptDefVal = "true"
			}
			help.Group(f, group, of.Flag.Name)
		}
	}
	return func() []string {
		var settings []string
		for _, v := range values {
			if f.Changed(v.of.Flag.Name) {
				settings = append(settings, v.setting())
			}
		}
		return settings
	}
}
