package statuspage

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"vpp-route-agent/internal/agent"
)

// A summary is no longer in a large cluster than in a small one. A list that is new in Status is
// cut, or named here because it cannot be long.
func TestListsOfASummaryAreBounded(t *testing.T) {
	short := []string{"Degraded", "Conditions", "Learn", "External", "Addresses", "Published",
		"Endpoints", "APILacks", "Unsettled"}
	var s agent.Status
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		for i := range v.NumField() {
			switch f := v.Field(i); {
			case !f.CanSet():
			case f.Kind() == reflect.Slice:
				f.Set(reflect.MakeSlice(f.Type(), 1000, 1000))
			case f.Kind() == reflect.Struct && f.Type() != reflect.TypeFor[time.Time]():
				fill(f)
			}
		}
	}
	fill(reflect.ValueOf(&s).Elem())
	out := summarize(s, time.Now(), time.Now())
	var check func(path string, v reflect.Value)
	check = func(path string, v reflect.Value) {
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			switch f := v.Field(i); {
			case f.Kind() == reflect.Slice && f.Len() > maxListed &&
				!slices.Contains(short, name):
				t.Errorf("%s.%s: %d", path, name, f.Len())
			case f.Kind() == reflect.Struct && f.Type() != reflect.TypeFor[time.Time]():
				check(path+"."+name, f)
			}
		}
	}
	check("Status", reflect.ValueOf(out.Status))
	if c := out.Counts; c.Problems != 1000 || c.Withheld != 1000 || c.Unrouted != 1000 ||
		c.UnusableHops != 1000 || c.Announcements != 1000 || c.Peers != 1000 {
		t.Error("what was left out is not counted: " + fmt.Sprint(c))
	}
}
