// What Argo CD's Lua makes of an object: for each line {"script": ..., "object": ...} of standard input, the value that
// the script returns for the global obj, or why it fails. See ../README.md.
package main

import (
	"context"
	"encoding/json"
	"time"

	lua "github.com/yuin/gopher-lua"
	luajson "layeh.com/gopher-json"

	"my-operator/tests/oracle/lines"
)

type question struct {
	Script string          `json:"script"`
	Object json.RawMessage `json:"object"`
}

type answer struct {
	Value json.RawMessage `json:"value,omitempty"`
	Error string          `json:"error,omitempty"`
}

// What Argo CD opens for a script of argocd-cm without useOpenLibs, in this order. It also has a library os: see dates.
var libraries = []struct {
	name string
	open lua.LGFunction
}{
	{lua.LoadLibName, lua.OpenPackage},
	{lua.BaseLibName, lua.OpenBase},
	{lua.TabLibName, lua.OpenTable},
}

// Two functions are all that Argo CD has of the library os.
func dates(vm *lua.LState) int {
	whole := lua.NewState()
	defer whole.Close()
	library := whole.GetGlobal(lua.OsLibName).(*lua.LTable)
	functions := map[string]lua.LGFunction{}
	for _, name := range []string{"date", "time"} {
		functions[name] = library.RawGetString(name).(*lua.LFunction).GFunction
	}
	vm.Push(vm.SetFuncs(vm.NewTable(), functions))
	return 1
}

func run(asked *question) (json.RawMessage, error) {
	vm := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer vm.Close()
	for _, library := range libraries {
		vm.Push(vm.NewFunction(library.open))
		vm.Push(lua.LString(library.name))
		vm.Call(1, 0)
	}
	vm.PreloadModule(lua.OsLibName, dates)
	// As long as in Argo CD.
	limit, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	vm.SetContext(limit)
	object, err := luajson.Decode(vm, asked.Object)
	if err != nil {
		return nil, err
	}
	vm.SetGlobal("obj", object)
	if err := vm.DoString(asked.Script); err != nil {
		return nil, err
	}
	return luajson.Encode(vm.Get(-1))
}

func judge(asked *question) answer {
	value, err := run(asked)
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Value: value}
}

func main() {
	lines.Answer(judge)
}
